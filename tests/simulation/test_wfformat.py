"""Workflows of other systems, written here: none is copied from a collection."""

import json
import re
from copy import deepcopy

import pytest

from benchkit.simulation.cluster import simulate_graph
from benchkit.simulation.graph import VirtualGraph
from benchkit.simulation.model import ClusterShape
from benchkit.simulation.wfformat import read_wfformat

MB = 10**6
#: Id, parents, seconds, files that it reads and writes, and cores.
TASKS = [
    ("split_ID1", [], 2.0, ["in"], ["a", "b", "c"], 1),
    ("work_ID2", ["split_ID1"], 5.0, ["a"], ["d"], 4),
    ("work_ID3", ["split_ID1"], 5.0, ["b"], ["e"], 1),
    ("work_ID4", ["split_ID1"], 5.0, ["c"], ["f"], 1),
    ("merge_ID5", ["work_ID2", "work_ID3", "work_ID4"], 1.0, ["d", "e", "f"], ["out"], 1),
]
FILES = dict.fromkeys("abc", 4 * MB) | dict.fromkeys("def", 5 * MB) | {"in": MB, "out": MB}


def instance(version="1.5"):
    """Return the workflow in a version of the format."""
    if version == "1.4":
        tasks = [
            {"name": name, "id": name.partition("_")[2], "category": name.partition("_")[0],
             "type": "compute", "parents": parents, "runtimeInSeconds": seconds, "cores": cores,
             "files": [{"name": file, "sizeInBytes": FILES[file], "link": link}
                       for link, files in (("input", reads), ("output", writes))
                       for file in files]}
            for name, parents, seconds, reads, writes, cores in deepcopy(TASKS)
        ]  # fmt: skip
        workflow = {"makespanInSeconds": 13, "executedAt": "2026-01-01", "tasks": tasks}
        return {"name": "own", "schemaVersion": version, "wms": {"name": "Own"},
                "workflow": workflow}  # fmt: skip
    tasks = [
        {"name": name, "id": name, "parents": parents, "inputFiles": reads, "outputFiles": writes,
         "children": [other for other, others, *_ in TASKS if name in others]}
        for name, parents, _, reads, writes, _ in deepcopy(TASKS)
    ]  # fmt: skip
    ran = [
        {"id": name, "runtimeInSeconds": seconds, "coreCount": cores,
         "command": {"program": f"/opt/{name.partition('_')[0]}"}}
        for name, _, seconds, _, _, cores in TASKS
    ]  # fmt: skip
    files = [{"id": file, "sizeInBytes": size} for file, size in FILES.items()]
    execution = {"makespanInSeconds": 13, "executedAt": "2026-01-01", "tasks": ran}
    return {"name": "own", "schemaVersion": version, "runtimeSystem": {"name": "Own"},
            "workflow": {"specification": {"tasks": tasks, "files": files},
                         "execution": execution}}  # fmt: skip


def read(tmp_path, content):
    path = tmp_path / "small example.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_wfformat(path)


@pytest.mark.parametrize("version", ["1.4", "1.5", "1.6"])
def test_graph_has_seconds_bytes_and_dependencies_of_the_file(tmp_path, version):
    graph = read(tmp_path, instance(version))

    assert graph.name == "wfformat.small_example"
    assert [key[0] for key in graph.keys] == [
        f"{kind}-0123abcd" for kind in ("split", "work", "work", "work", "merge")
    ]
    assert graph.dependencies == [[], [0], [0], [0], [1, 2, 3]]
    assert graph.seconds == [2, 5, 5, 5, 1]
    assert graph.nbytes == [12 * MB, 5 * MB, 5 * MB, 5 * MB, MB]
    assert graph.note == (
        "Own took 13 s on its own machines; "
        "tasks that used more than one core, and take one thread here: 1; "
        "a task fetches all files of its parents: 51 MB in all, of which it read 27 MB"
    )
    assert VirtualGraph.from_dict(json.loads(json.dumps(graph.to_dict()))) == graph


@pytest.mark.parametrize(("workers", "seconds"), [(1, 18), (3, 8)])
def test_schedule_follows_the_dependencies(tmp_path, workers, seconds):
    graph = read(tmp_path, instance())

    duration = simulate_graph(graph, ClusterShape(workers, 1)).duration

    assert seconds < duration < seconds + 2  # other workers steal after a second at most


def test_names_without_a_program_are_grouped_without_their_numbers(tmp_path):
    content = instance()
    names = ["a_ID0000001", "A.B.C_12", "x-3", "7", "sam2bam"]
    tasks = content["workflow"]["specification"]["tasks"]
    for task, name in zip(tasks, names, strict=True):
        task["name"] = name
    for task in content["workflow"]["execution"]["tasks"]:
        task["command"]["program"] = "set -e\nrun things | sort"

    graph = read(tmp_path, content)

    expected = ["a", "A.B.C", "x", "task", "sam2bam"]
    assert [key[0].partition("-0123")[0] for key in graph.keys] == expected


def test_what_is_absent_is_named(tmp_path):
    content = instance()
    del content["runtimeSystem"], content["workflow"]["execution"]["makespanInSeconds"]
    content["workflow"]["specification"]["files"] = []
    assert read(tmp_path, content).note == (
        "tasks that used more than one core, and take one thread here: 1; "
        "files without a size, which count as 0 B: 7"
    )
    for task in content["workflow"]["specification"]["tasks"]:
        del task["inputFiles"], task["outputFiles"]
    assert read(tmp_path, content).note.endswith("no files are listed: transfers are free")


def _changed(change):
    content = instance()
    change(content, content["workflow"]["specification"]["tasks"])
    return content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON: "),
        ("[]", "schemaVersion None: must be 1.4, 1.5, 1.6 of WfFormat"),
        (instance("1.2"), "schemaVersion '1.2': must be"),
        ({"schemaVersion": "1.5"}, "is not WfFormat 1.5: 'workflow' is missing"),
        ({"schemaVersion": "1.5", "workflow": 3}, "is not WfFormat 1.5: 'int' object"),
        (
            _changed(lambda content, tasks: content["workflow"].pop("execution")),
            "5 of 5 tasks have no runtimeInSeconds, such as split_ID1: only a workflow that ran",
        ),
        (_changed(lambda _, tasks: tasks.clear()), "it has no tasks"),
        (_changed(lambda _, tasks: tasks.append(tasks[0])), "two tasks have the same id"),
        (
            _changed(lambda _, tasks: tasks[1]["parents"].append("x")),
            "task work_ID2: its parent x is not in the file",
        ),
        (
            _changed(lambda _, tasks: tasks[0]["parents"].append("merge_ID5")),
            "tasks wait for each other: ",
        ),
        (
            _changed(lambda content, _: content["workflow"]["execution"]["tasks"][0].update(
                runtimeInSeconds=-1)),
            "task split_ID1: runtimeInSeconds -1",
        ),
    ],
)  # fmt: skip
def test_files_that_cannot_be_simulated_are_refused_in_one_line(tmp_path, content, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        read(tmp_path, content)

    assert "\n" not in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "small example.json"))


def test_file_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"none\.json: No such file or directory"):
        read_wfformat(tmp_path / "none.json")
