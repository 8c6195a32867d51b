"""Measure slowdowns that people reported: ``python benchmarks/dask_reported.py [--write-docs]``.

Compares the last good with the first bad release of each report on a small workload that does the
same (`validation/dask_history/reported.py`). Needs a quiet machine and a checkout. Ten minutes.
"""

import argparse
import math
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from dask_history import environment  # noqa: E402

import benchkit  # noqa: E402
from benchkit.errors import InvalidEnvironmentError  # noqa: E402
from benchkit.formatting import format_change  # noqa: E402
from validation.docs_tables import show_table  # noqa: E402

#: Report, workload, last good release, first bad release, what the report says.
REPORTS = (
    ("dask#11453", "repeated_index", "2024.7.1", "2024.8.0", "6 times the time"),
    ("dask#11416", "tokens_of_objects", "2024.8.0", "2024.8.1", "9 times the time"),
    ("dask#11592", "frame_of_selection", "2024.10.0", "2024.12.0", "memory 0.2 to 3 GB"),
    ("dask#11507", "fused_frame", "2024.10.0", "2024.11.0", "7 times the time"),
    ("dask#11735", "index_by_list", "2024.11.2", "2024.12.0", "2.4 times the time"),
    ("dask#11579", "ravel", "2024.11.2", "2024.12.0", "4.6 times the time"),
    ("dask#12020", "slice_and_mask", "2024.11.2", "2024.12.0", "out of 14 GB"),
    ("xarray#9926", "slice_of_file", "2024.11.2", "2024.12.0", "4 s, then hangs"),
    ("distributed#9054", "submitted_objects", "2025.3.0", "2025.4.0", "serialised several times"),
    ("dask#12298", "delayed_of_collection", "2025.3.0", "2025.4.0", "quadratic"),
    ("none found (dask#11736)", "fused_frame", "2025.3.0", "2025.4.0", "frames are not fused"),
    ("the same", "optimised_frame", "2025.3.0", "2025.4.0", "a way around it: `optimize()`"),
)
#: Metrics that a report may be about, as benchkit judges them.
SHOWN = ("duration", "client_cpu_time", "client_memory_peak", "memory_peak", "n_tasks")
OWN = "n_serialised"
#: Smallest change that the last column names, as a logarithm.
MIN_CHANGE = math.log(1.05)
TABLES = {"reported": ("report", "between", "reported", "duration", "also")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="runs of each workload and release")
    parser.add_argument("--store", help="store of the runs; what it has is not measured again")
    parser.add_argument("--write-docs", action="store_true", help="write the table into the page")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="reported-"))
    store = benchkit.Store(options.store or folder / "store")
    rows = []
    for report in REPORTS:
        try:
            rows.append(_row(report, _runs(report, store, folder, options.repeats)))
        except InvalidEnvironmentError as error:
            print(error, file=sys.stderr)
            rows.append([*_about(report), "a release cannot be installed", ""])
    below = (
        "Ratios with their 95 % intervals; in the last column what else changed by 5 % or more. "
        "CPU seconds of runs that something disturbed are compared at equal load."
    )
    columns = TABLES["reported"]
    show_table(__file__, "reported", columns, rows, write=options.write_docs, below=below)


def _runs(report, store, folder, repeats):
    """Return the runs of the last good and of the first bad release; measure them if need be."""
    workload, names = f"reported.{report[1]}", [f"dask-{release}" for release in report[2:4]]

    def stored():
        runs = store.runs(workload=workload)
        return [runs[runs["environment"] == name] for name in names]

    if not all((side["outcome"] == "ok").any() for side in stored()):
        for release in report[2:4]:
            environment(release, folder)
        benchkit.ab(
            names, workload, repeats=repeats, null=False, store=store, environment_folders=[folder],
            folders=[HERE.parent / "validation" / "dask_history"],
        )  # fmt: skip
    return [side[side["outcome"] == "ok"] for side in stored()]


def _about(report):
    name, _, good, bad, reported = report
    return [name, f"{good}, {bad}", reported]


def _row(report, sides):
    """Return the line of a report."""
    found = benchkit.compare(*sides, metrics=SHOWN).frame.set_index("metric")
    others = [
        f"`{metric}` {format_change(row['ratio'])}"
        for metric, row in found.iterrows()
        if metric != "duration" and row["changed"] and abs(math.log(row["ratio"])) >= MIN_CHANGE
    ]
    counts = [side[OWN].median() if OWN in side else math.nan for side in sides]
    if not any(map(math.isnan, counts)):
        others.append("serialised {:.0f} and {:.0f} times".format(*counts))
    row = found.loc["duration"]
    ratio = f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
    return [*_about(report), ratio, "; ".join(others)]


if __name__ == "__main__":
    main()
