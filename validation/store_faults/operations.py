"""Operations of a store, runs for them and what files must contain."""

import json
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from typing import Any

from benchkit.measure.run_ids import derived_id
from benchkit.store.manifest import STORE_FILE
from benchkit.store.runfile import encode_run
from benchkit.store.storage import run_name
from benchkit.store.store import Store
from validation.synthetic_runs import make_run

#: Start of the times of all runs: 2026-08-01.
NIGHT = 1785549600.0


def small_run(number: int) -> Any:
    """Return run `number`, always the same."""
    moment = NIGHT + 86400 * 20 * number
    return make_run(groups=False, id=derived_id(moment, str(number)), seed=number)


#: New runs of `add`, `add_many` and of the source of `copy`.
NEW = [small_run(number) for number in range(20, 23)]
NEW_FILES = {run_name(tree.attrs["id"]): encode_run(tree)[2] for tree in NEW}
#: Runs that each store contains at the start, unless it is new.
OLD = [small_run(number) for number in range(3)]
OLD_IDS = [tree.attrs["id"] for tree in OLD]


def _mark(store: Store) -> str:
    return store.mark("exclude", runs=[OLD_IDS[0]], reason="disk") if len(store) else _event(store)


def _event(store: Store) -> str:
    return str(store.add_event("night", runs=1)["id"])


def _check(store: Store) -> str:
    report = store.check()
    return "" if report.healthy else repr(report)


#: Operation -> function; its result is what it confirms.
OPERATIONS: dict[str, Callable[[Store], Any]] = {
    "add": lambda store: store.add(NEW[0]),
    "add_many": lambda store: store.add_many(NEW[:2]),
    "copy": lambda store: Store(store.path.parent / "source").copy(store),
    "mark": _mark,
    "compact": lambda store: store.compact(),
    "prune": lambda store: store.prune(OLD_IDS[:1]),
    "check": _check,
}


def unequal_files(store_files: Any, before: dict[str, str]) -> list[str]:
    """Return what is wrong with the visible files of a store."""
    problems = []
    seen = {}
    for name in store_files.walk():
        data = store_files.read(name)
        plain = name.removeprefix("trash/")
        seen[plain] = sha256(data).hexdigest()
        if not STORE_FILE.fullmatch(name):
            problems.append(f"{name}: not a file of a store")
        elif plain in before:
            if seen[plain] != before[plain]:
                problems.append(f"{name}: other bytes than before")
        elif plain in NEW_FILES:
            if data != NEW_FILES[plain]:
                problems.append(f"{name}: not the bytes that were added")
        elif name.endswith(".json"):
            with suppress(ValueError):
                json.loads(data)
                continue
            problems.append(f"{name}: half written")
    return problems + [f"{name}: lost" for name in before if name not in seen]
