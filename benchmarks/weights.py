"""Print what the installation and each extra weigh: ``python benchmarks/weights.py``.

Adds up the files of the installed packages that each extra needs, in an environment with all of
them. What an extra adds is without what the base has. ``--write-docs`` writes the table into
docs/platforms.md.
"""

import argparse
import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

sys.path.insert(0, str(Path(__file__).parents[1]))

from validation.docs_tables import show_table

#: Tables of docs/platforms.md.
TABLES = {"extras": ("extra", "packages", "size", "largest, in MB")}
#: Extras that are sets of others or for developers, and one that is half a gigabyte.
LEFT_OUT = {"all", "dev", "docs", "spark"}


def needed(name: str, extras: frozenset[str], known: dict[tuple[str, str], None]) -> None:
    """Add an installed package and what it needs to `known`, as (name, extra)."""
    for extra in {"", *extras}:
        if (name, extra) in known:
            continue
        known[name, extra] = None
        for text in metadata.distribution(name).requires or ():
            requirement = Requirement(text)
            applies = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
            is_of_extra = requirement.marker is not None and "extra" in str(requirement.marker)
            if applies and (is_of_extra or not extra):
                needed(canonicalize_name(requirement.name), frozenset(requirement.extras), known)


def packages(extra: str) -> set[str]:
    """Return the packages that an extra of benchkit needs, with those of the base."""
    known: dict[tuple[str, str], None] = {}
    needed("dask-benchkit", frozenset({extra}), known)
    return {name for name, _ in known} - {"dask-benchkit"}


def size(name: str) -> int:
    """Return the bytes of the installed files of a package, with compiled ones."""
    files = metadata.files(name) or ()
    return sum(path.stat().st_size for file in files if (path := Path(file.locate())).is_file())


def row(extra: str, names: set[str]) -> tuple[str, int, str, str]:
    """Return a row of the table: number of packages, size, and the largest three."""
    sizes = sorted(((size(name), name) for name in names), reverse=True)
    largest = ", ".join(f"{name} {n / 1e6:.0f}" for n, name in sizes[:3] if n >= 500_000)
    return extra, len(names), f"{sum(n for n, _ in sizes) / 1e6:.0f} MB", largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write-docs", action="store_true", help="write the table into the page")
    given = parser.parse_args()
    base = packages("")
    rows = [row("(none)", base)]
    provided = metadata.metadata("dask-benchkit").get_all("Provides-Extra") or []
    for extra in sorted(set(provided) - LEFT_OUT):
        try:
            rows.append(row(f"`{extra}`", packages(extra) - base))
        except metadata.PackageNotFoundError as error:
            print(f"{extra}: left out: {error}", file=sys.stderr)
    show_table(__file__, "extras", TABLES["extras"], rows, write=given.write_docs)


if __name__ == "__main__":
    main()
