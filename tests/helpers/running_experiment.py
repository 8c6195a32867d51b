"""Store with an experiment whose last run is being recorded."""

import json
from pathlib import Path

from benchkit.measure.run_ids import new_id
from validation.dashboard_server import HOSTILE, with_record

EXPERIMENT = new_id()
ARMS, BLOCKS = ("main", "new"), 3


def arm_run(a_run, arm, block):
    duration = (10.0 if arm == "main" else 15.0) * (1 + 0.01 * block)
    facts = {"experiment": EXPERIMENT, "arm": arm, "block": block, "order": block}
    run = with_record(a_run, id=new_id(), duration=duration, **facts)
    run["duration"] = run["duration"] * 0 + duration
    del run.attrs["duration"]
    return run


def write_plan(store, entries):
    folder = Path(store.path, "experiments", EXPERIMENT)
    folder.mkdir(parents=True)
    keys = ("order", "block", "variant", "arm", "deadline_s")
    plan = [dict(zip(keys, (i, *entry, 60.0), strict=True)) for i, entry in enumerate(entries)]
    words = {"command": f"ab main new {HOSTILE}"}
    (folder / "plan.json").write_text(json.dumps({"words": words, "arms": [], "plan": plan}))


def in_progress(store, a_run):
    """Fill a store: an experiment whose last run is being recorded, one hostile variant planned."""
    entries = [(block, "tests.sum", arm) for block in range(BLOCKS) for arm in ARMS]
    for block, _, arm in entries[:-1]:
        store.add(arm_run(a_run, arm, block))
    write_plan(store, [*entries, (0, HOSTILE, "main")])
    block, variant, arm = entries[-1]
    recording = Path(store.path, "tmp", "recordings", EXPERIMENT, f"{new_id()}.recording")
    recording.mkdir(parents=True)
    head = {"block": block, "arm": arm, "workload": variant}
    (recording / "head.json").write_text(json.dumps(head))
    return store
