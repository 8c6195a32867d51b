"""The table of pairs from public reports is complete, and its workloads run."""

import inspect
import random
from pathlib import Path

import pytest
from helpers.commands import run_forked

from benchkit import Store
from validation.reports import table

ROOT = Path(__file__).parents[1]
PAIRS = table.all_pairs()


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_pair_names_report_causes_and_advice(pair):
    assert pair.report
    assert all(address.startswith("https://") for address in pair.report)
    assert {pair.cause, *pair.also} <= set(table.CAUSES)
    assert pair.cause not in pair.also
    assert pair.advice.endswith(".")
    assert pair.wrong
    assert pair.speedup > 1


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_pair_has_two_forms_that_take_a_client(pair):
    for form in (pair.sick, pair.mended):
        assert list(inspect.signature(form).parameters) == ["client"]
    # Different code, or the same code on another cluster.
    assert (pair.sick is pair.mended) == (pair.mended_cluster is not None)


def test_second_pair_of_an_id_is_refused():
    taken = next(iter(PAIRS))

    with pytest.raises(ValueError, match=f"pair {taken}: the id is taken"):
        table.pair(
            id=taken, report="https://example.org", cause="client", advice="Wait.", wrong="none"
        )(type("Forms", (), {"sick": len, "mended": len}))


def test_each_cause_has_a_pair():
    assert {c for pair in PAIRS.values() for c in (pair.cause, *pair.also)} == set(table.CAUSES)


def test_halves_are_drawn_by_the_seed():
    drawn = sorted({*table.WORK, *table.HELD_OUT})

    assert len(drawn) == 40
    assert set(drawn) <= set(PAIRS)
    assert sorted(random.Random(table.SEED).sample(drawn, 20)) == list(table.WORK)
    assert len(table.HELD_OUT) == 20


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_benchmark_records_both_forms_of_sleeping_pairs(tmp_path):
    chosen = ["compute-in-loop", "pinned-to-one-worker"]
    words = ["--only", chosen[0], "--only", chosen[1], "--store", tmp_path / "store"]

    done = run_forked(["reports.py", *words], ROOT / "benchmarks")

    # Exit code 1 is a mend that gains too little, which the load of the machine may cause.
    assert done.returncode in (0, 1), done.stderr
    assert "of 2 pairs" in done.stdout
    assert "answers differ" not in done.stdout
    runs = Store(tmp_path / "store").runs()
    assert sorted(runs["workload"]) == sorted(2 * [f"reports.{name}" for name in chosen])


def test_benchmark_refuses_an_unknown_pair():
    done = run_forked(["reports.py", "--only", "nonsense"], ROOT / "benchmarks")

    assert done.returncode == 1
    assert "--only nonsense: no such pair" in done.stderr
