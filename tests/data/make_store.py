"""Make a fixture store as benchkit writes it now: ``python tests/data/make_store.py NAME``.

Run once, when files of a store change: a new format version, or a change such as digests that older
readers ignore. The folder it makes is never changed afterwards, so that every store ever written
keeps opening. It refuses to touch one that exists.

``1``: the first format. ``1_digests``: run files end with their digest, which is also in the index;
the ledger has an event.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]

from benchkit.measure.run_ids import derived_id  # noqa: E402
from benchkit.store.store import Store  # noqa: E402
from validation.synthetic_runs import make_run  # noqa: E402

NIGHT = 1785549600.0  # 2026-08-01T02:00:00Z


def main() -> None:
    """Write the store."""
    folder = HERE / sys.argv[1]
    if folder.exists():
        raise SystemExit(f"{folder}: exists, and fixture stores are never changed")
    store = Store(folder)
    store.add(
        make_run(
            id=derived_id(NIGHT, "full"), tags={"variant": "A"}, n_samples=6, n_tasks=12, seed=1
        )
    )
    store.add(
        make_run("array.basic_sum[chunks=thin]", groups=False, id=derived_id(NIGHT + 60, "light"),
                 started="2026-08-01T02:01:00.000000+00:00", capture="light", duration=12.5)
    )  # fmt: skip
    store.compact()
    store.add(
        make_run("frame.join", groups=False, id=derived_id(NIGHT + 86400 * 31, "failed"),
                 started="2026-09-01T02:00:00.000000+00:00", outcome="failed", phase="workload",
                 error="ValueError: <b>no</b> µ", attrs={"traceback": "Traceback ...\n" * 3})
    )  # fmt: skip
    skipped = make_run("frame.join", groups=False, id=derived_id(NIGHT + 86400 * 32, "skipped"),
                       started="2026-09-02T02:00:00.000000+00:00", outcome="skipped",
                       cluster=None, n_threads=None, memory_limit=None)  # fmt: skip
    store.add(skipped)
    store.mark("rename", from_="array.basic_sum", to="array.column_sum", by="maintainer")
    store.mark("exclude", runs=[skipped.attrs["id"]], reason="pandas was missing")
    store.add_event("night", runs=4)
    (folder / "tmp").rmdir()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {len(store)} runs, {size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
