"""A store whose runs contain a payload in each string.

Attributes, leaves and keys of JSON, coordinates, task groups, logs, events, arms, tags, parameters,
hosts, environments and marks.
"""

import itertools
import json
from pathlib import Path
from typing import Any

import xarray as xr
from distributed import Client, LocalCluster

import benchkit
from benchkit.measure.run_ids import new_id
from validation.dashboard_server import with_record

#: Each sets `hacked`, in another context.
PAYLOADS = (
    "<script>hacked=1</script>",
    '"><img src=x onerror=hacked=1>',
    "'><svg/onload=hacked=1>",
    "</script><script>hacked=1</script>",
    "</style><script>hacked=1</script>",
    "</textarea><script>hacked=1</script>",
    "--><script>hacked=1</script>",
    '" onmouseover="hacked=1" x="',
    "' onfocus=hacked=1 autofocus x='",
    "javascript:hacked=1",
    "[x](javascript:hacked=1)",
    "</a><a href=javascript:hacked=1>x</a>",
    "${hacked=1}`+(hacked=1)+`",
    "<%= hacked=1 %>{{hacked=1}}@$name",
    "$$\\href{javascript:hacked=1}{x}$$",
    '\\"+(hacked=1)+\\"\';hacked=1;//\u2028',
)
#: What a run needs to be a run.
KEPT = (
    "id", "started", "outcome", "capture", "experiment", "order", "block", "record", "category",
    "metric_versions", "extra_metrics", "kind", "metrics", "topic", "unit", "action", "activity",
    "context", "parent", "keys", "codes", "complete", "level",
)  # fmt: skip


def poisoned(value: Any, payload: str) -> Any:
    """Return a value with a payload in each string and a key that is one."""
    if isinstance(value, dict):
        changed = {k: v if k in KEPT else poisoned(v, payload) for k, v in value.items()}
        texts = value and all(isinstance(v, str) for v in value.values())
        return {**changed, payload: payload} if texts else changed
    if isinstance(value, list):
        return [poisoned(item, payload) for item in value]
    return value + payload if isinstance(value, str) else value


def poisoned_text(text: str, payload: str) -> str:
    """Return a text, or the strings of its JSON, with a payload."""
    try:
        value = json.loads(text)
    except ValueError:
        return text + payload
    return json.dumps(poisoned(value, payload)) if isinstance(value, dict | list) else text


def hostile_run(tree: xr.DataTree, payload: str, **facts: Any) -> xr.DataTree:
    """Return a run with a payload in every string."""
    words = {
        name: poisoned_text(str(tree.attrs[name]), payload)
        for name in ("workload", "environment", "host", "tags", "params", "cluster")
    }
    run = with_record(tree, id=new_id(), **words, **facts)
    for name, value in run.attrs.items():
        if isinstance(value, str) and name not in (*KEPT, *words, *facts):
            run.attrs[name] = poisoned_text(value, payload)
    run.attrs |= dict.fromkeys(("description", "source", "traceback", "error"), payload)
    run.attrs["logs"] = json.dumps({payload: [payload]})
    for path in [node.path for node in run.subtree if node.path != "/"]:
        data = run[path].to_dataset()
        for name, column in data.variables.items():
            if column.dtype.kind in "OU" and name not in KEPT and column.ndim == 1:
                texts = [poisoned_text(str(text), payload) for text in column.values]
                assign = data.assign_coords if name in data.coords else data.assign
                data = assign({name: (column.dims, texts)})
        run[path] = xr.DataTree(data)
    return run


def hostile_store(folder: Path) -> benchkit.Store:
    """Return a store with a real run, hostile copies, hostile arms and hostile marks."""
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False}
    store = benchkit.Store(folder / "store")
    with LocalCluster(**options, dashboard_address=None) as cluster, Client(cluster) as client:
        with benchkit.record(client, workload="tests.sum", store=store) as recorded:
            import dask.array as da

            da.random.random((1000, 1000), chunks=500).dot(da.ones((1000, 9))).sum().compute()
    tree = recorded.run.tree
    for payload in PAYLOADS:
        nights = range(1, 13)
        for night in nights:
            started = f"2026-11-{night:02d}T02:00:00+00:00"
            slow = 1.5 if night > 6 else 1.0
            run = hostile_run(tree, payload, started=started, outcome="ok", duration=slow)
            run["duration"] = run["duration"] * 0 + slow
            store.add(run)
        failed = hostile_run(tree, payload, outcome="failed", error=payload)
        store.add(failed)
        store.mark("exclude", reason=payload, by=payload, runs=[failed.attrs["id"]])
        experiment = new_id()
        for block, arm in itertools.product(range(2), ("main", payload)):
            facts = {"experiment": experiment, "arm": arm, "block": block, "order": block}
            store.add(hostile_run(tree, payload, outcome="ok", **facts))
    return store
