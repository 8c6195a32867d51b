import json

import pytest

import benchkit.cli.rows as stored_runs
from benchkit.cli.rows import as_records, runs_as_json
from benchkit.measure.run_ids import new_id
from benchkit.store.store import Store


@pytest.mark.parametrize("without_start", [False, True])
def test_runs_as_json_in_parts_has_the_runs_of_all(tmp_path, monkeypatch, without_start):
    store = Store(tmp_path / "s")
    store.create()
    hours = [1, 1, 1, 2, 3, 3, 4, 5, 5, 5]
    records = [
        {"id": new_id(), "workload": f"made.w{n % 2}", "started": f"2026-08-01T0{hour}:00:00"}
        for n, hour in enumerate(hours)
    ]
    records += [{"id": new_id(), "workload": "made.w1"}] if without_start else []
    store.index.add_many(records)
    whole = list(runs_as_json(str(store.path), None))
    monkeypatch.setattr(stored_runs, "_RUNS_PER_PART", 3)
    monkeypatch.setattr(stored_runs, "_TEXTS_PER_PART", 2)

    parts = list(runs_as_json(str(store.path), None))
    some = list(runs_as_json(str(store.path), "w1", since="2026-08-01T03:00"))

    assert [json.loads(text)["id"] for text in whole] == [record["id"] for record in records]
    assert parts == whole
    assert [json.loads(text)["id"] for text in some] == [records[n]["id"] for n in (5, 7, 9)]


def test_runs_as_json_is_the_json_of_each_record(tmp_path):
    store = Store(tmp_path / "s")
    store.create()
    common = {"outcome": "ok", "version": 1, "n_workers": 2}
    nested = {"a": "1", "b\n": {"c": [1, "ä"], "d": {}}, "e": []}
    records = [
        {"id": new_id(), "workload": "made.w", **common, "tags": nested, "started": "2026-08-01"},
        {"id": new_id(), "workload": 'made.w["\n"]', "started": "2026-08-02T03:04:05.000006"},
        {"id": new_id(), "workload": "made.w", **common, "duration": 1e16, "memory_peak": 3.0},
        {"id": new_id(), "workload": "made.w", "duration": 0.1, "new_field": "x", "new_number": 2},
    ]
    store.index.add_many(records)
    frame = store.runs()

    texts = list(runs_as_json(str(store.path), None))

    rows = as_records(frame)
    assert [row["tags"] for row in rows] == [nested, {}, {}, {}]
    rows = [
        {n: None if isinstance(v, float) and v != v else v for n, v in row.items()} for row in rows
    ]
    assert texts == [json.dumps(row, default=str, indent=1) for row in rows]


def test_runs_as_json_reads_only_one_part_at_once(tmp_path, monkeypatch):
    store = Store(tmp_path / "s")
    store.create()
    times = [f"2026-08-{day:02}T{hour:02}:00:00" for day in range(1, 11) for hour in range(10)]
    store.index.add_many([{"id": new_id(), "workload": "made.w", "started": t} for t in times])
    monkeypatch.setattr(stored_runs, "_RUNS_PER_PART", 20)
    read = []
    monkeypatch.setattr(
        stored_runs, "matching_runs", lambda *args, runs=stored_runs.matching_runs, **options:
        read.append(runs(*args, **options)) or read[-1]
    )  # fmt: skip

    texts = runs_as_json(str(store.path), None)

    first = json.loads(next(texts))
    assert first["started"] == "2026-08-01 00:00:00+00:00"
    assert [frame.shape[0] for frame in read] == [100, 20]
    assert list(read[0].columns) == ["started"]
    assert len(list(texts)) == 99
