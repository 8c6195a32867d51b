"""Damage run files and count what `check` and `open` find."""

import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress

from benchkit.errors import UnreadableRun
from benchkit.store import storage
from benchkit.store.storage import run_name
from benchkit.store.store import Store
from validation.synthetic_runs import make_run

_ZEROED_BYTES = 64


def flip_bit(data: bytearray, rng: random.Random) -> None:
    """Flip one bit."""
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def zero_bytes(data: bytearray, rng: random.Random) -> None:
    """Write zeros over 64 bytes that are not all zero."""
    before = bytes(data)
    while data == before:
        start = rng.randrange(len(data) - _ZEROED_BYTES + 1)
        data[start : start + _ZEROED_BYTES] = bytes(_ZEROED_BYTES)


def truncate(data: bytearray, rng: random.Random) -> None:
    """Remove the end."""
    del data[rng.randrange(len(data)) :]


KINDS: dict[str, Callable[[bytearray, random.Random], None]] = {
    "one bit": flip_bit,
    "64 zeroed bytes": zero_bytes,
    "truncation": truncate,
}


def count_found(times: int, seed: int) -> Iterator[tuple[str, int, int]]:
    """Yield a kind of damage, how many of the files `check` names, and how many `open` refuses."""
    with tempfile.TemporaryDirectory(prefix="store-damage-") as folder:
        store = Store(folder)
        run_id = store.add(make_run(seed=seed))
        path = store.files.path(run_name(run_id))
        whole = path.read_bytes()
        for kind, damage in KINDS.items():
            rng = random.Random(f"{seed} {kind}")
            n_named = n_refused = 0
            for _ in range(times):
                data = bytearray(whole)
                damage(data, rng)
                path.write_bytes(data)
                storage._kept.clear()  # the clock of a file system may stand still for some ms
                n_named += store.check(repair=False).damaged_runs == [run_id]
                with suppress(UnreadableRun):
                    store.open(run_id)
                    continue
                n_refused += 1
            yield kind, n_named, n_refused
