"""Findings of a run: none of a healthy one, ordered by cost, with a command."""

import json
import shlex
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from click.testing import CliRunner

from benchkit.analysis.insight.diagnose import diagnose
from benchkit.cli.main import benchkit as main
from benchkit.store.schema import METRICS
from benchkit.store.store import Store
from benchkit.store.task_graph import TaskGraph
from validation.planted_faults import PLANTED, run_of, sample
from validation.synthetic_recordings import MB, ON


def test_healthy_run_has_no_findings(tmp_path):
    samples = [
        sample(t, i, process=300 * MB, gil_time=0.02 * t, tick_max=0.02, unmanaged_old=100 * MB,
               cpu_time=4.9 * t / 2.5, process_number=i, machine_number=1, gc_time=0.01 * t,
               machine_cpu_time=10 * t / 2.5, monitor_time=ON + t)
        for t in (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)
        for i in (0, 1)
    ]  # fmt: skip
    scheduler = [
        {"time": ON + t, "monitor_time": ON + t, "cpu": 8.0, "gc_time": 0.001 * t}
        for t in (0.5, 1, 1.5, 2, 2.5)
    ]
    run = run_of(tmp_path, samples=samples, scheduler=scheduler)

    diagnosis = diagnose(run)

    assert diagnosis.findings == []
    assert diagnosis.sentence == "nothing found that costs 3% of the duration and 0.2 s"
    assert "100%" in diagnosis.conclusion[0]


def test_findings_are_ordered_by_cost_and_have_a_command(tmp_path):
    faults = {**PLANTED["gil"], **PLANTED["blocked_loop"]}

    diagnosis = diagnose(run_of(tmp_path, **faults))

    assert [found.rule for found in diagnosis.findings] == ["gil", "blocked_loop"]
    costs = [found.seconds for found in diagnosis.findings]
    assert costs == sorted(costs, reverse=True)
    first, second = diagnosis.to_records()
    assert first["settings"] == {"cluster.n_workers": 4, "cluster.threads_per_worker": 1}
    assert "{'before': {}, 'after': {'n_workers': 4, 'threads_per_worker': 1}}" in first["prove"]
    assert second["prove"] == ""
    assert second["window"] == pytest.approx((0.2, 1.0))
    assert "turn.record(client, workload=&#x27;t.made[size=1]&#x27;)" in diagnosis._repr_html_()
    assert "parse < read" in repr(diagnosis)


def test_run_of_an_earlier_release_is_diagnosed_by_its_own_metrics(tmp_path):
    faults = [PLANTED["gil"], PLANTED["failed_attempts"]]
    pairs = zip(*(fault["samples"] for fault in faults), strict=True)
    new = run_of(tmp_path / "recording", samples=[{**gil, **failed} for gil, failed in pairs])
    tree = new.tree.copy()
    for name in ("gil_time", "failed_time", "clock_step"):
        del tree["workers"][name]
    earlier = {name: 0.9 * new.metrics[name] for name in ("gil_contention_mean", "failed_time")}
    versions = {name: METRICS[name].version - 1 for name in earlier}
    record = {**new.record, **earlier, "metric_versions": json.dumps(versions)}
    tree.attrs |= {"metric_versions": record["metric_versions"], "record": json.dumps(record)}
    for name, value in earlier.items():
        tree[name] = value
    store = Store(tmp_path / "store")

    old = store.open(store.add(tree))

    assert old.metrics["gil_contention_mean"] == pytest.approx(0.81)
    assert old.metrics["failed_time"] == pytest.approx(1.8)
    assert {"gil", "failed_attempts"} <= {found.rule for found in diagnose(old).findings}
    ratios = old.compare(new)["ratio"]
    assert ratios[METRICS["duration"].long_name] == 1.0
    for name in earlier:
        assert np.isnan(ratios[METRICS[name].long_name]), "of another definition"


def test_conclusion_names_the_group_and_the_line_of_the_user(tmp_path):
    library = ("sort", "/env/lib/python3.12/site-packages/pandas/core/frame.py")
    outer, inner = ("load", "/code/pipeline.py"), ("clean", "/code/steps.py")
    stacks = {("work", outer, inner, library): 7, ("work", outer): 1}
    run = run_of(tmp_path, stacks={**stacks, ("other", ("f", "/code/f.py")): 50})

    assert diagnose(run).conclusion[2] == (
        "100% is in tasks of work, most of it in load (pipeline.py:1)."
    )


def test_conclusion_of_a_disturbed_run_says_so_first(tmp_path):
    run = run_of(tmp_path, **PLANTED["neighbours"])

    assert diagnose(run).conclusion[0].startswith("The run was disturbed: other processes used")


def test_diagnosis_reads_the_graph_once(tmp_path, monkeypatch):
    run, reads, read = run_of(tmp_path, **PLANTED["slow_worker"]), [], TaskGraph.of
    monkeypatch.setattr(TaskGraph, "of", lambda tree: reads.append(tree) or read(tree))

    diagnose(run)

    assert len(reads) == 1


def test_run_without_graph_gets_the_rules_that_need_none(tmp_path):
    run = run_of(tmp_path, **PLANTED["blocked_loop"])
    del run.tree["submissions"]

    diagnosis = diagnose(run)

    assert diagnosis.conclusion == []
    assert [found.rule for found in diagnosis.findings] == ["blocked_loop"]


def test_run_without_capture_has_no_findings(tmp_path):
    run = run_of(tmp_path)
    for name in list(run.tree.children):
        del run.tree[name]
    assert diagnose(run).findings == []


WORKLOAD = """from benchkit.measure import workload

@workload(variants={"size": [1]})
def made(client, scale, size):
    "Do nothing."
"""


@pytest.mark.parametrize("rule", PLANTED)
def test_printed_proofs_run(tmp_path, monkeypatch, rule):
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "t.py").write_text(WORKLOAD)
    run = run_of(tmp_path / "run", **PLANTED[rule])
    code_diagnosis = diagnose(run)
    workload_diagnosis = replace(code_diagnosis, environment="current")
    arms = []

    def measure(experiment, *_, **__):
        arms.append([arm.environment for arm in experiment.arms])
        raise SystemExit  # the command is accepted, and its plan is made

    monkeypatch.setattr("benchkit.cli.progress.measure", measure)
    for name in ("benchkit.experiment.record", "dask.distributed"):
        import_module(name)  # a first import while names are replaced would keep the replacements
    monkeypatch.setattr("distributed.LocalCluster", lambda **options: nullcontext(options))
    monkeypatch.setattr("distributed.Client", nullcontext)
    monkeypatch.setattr("benchkit.experiment.record.record", lambda *_, **__: nullcontext())
    for found in code_diagnosis.findings:
        if not found.settings:
            assert code_diagnosis.proof(found) == workload_diagnosis.proof(found) == ""
            continue
        exec(code_diagnosis.proof(found), {})
        words = shlex.split(workload_diagnosis.proof(found))
        folders = ["--workloads", str(tmp_path / "w"), "--store", str(tmp_path / "store")]
        result = CliRunner().invoke(main, [*words[1:], *folders])
        assert arms, result.output
        changed = arms.pop()[1]
        for name, value in found.settings.items():
            part, _, key = name.partition(".")
            assert str(getattr(changed, part)[key]) == str(value)
