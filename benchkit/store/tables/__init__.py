"""Tables of a run's content and of foreign formats: names, types, units, one CSV file each."""

from __future__ import annotations

import csv
from pathlib import Path


def read_table(name: str) -> list[dict[str, str]]:
    """Return the rows of a table in the order of the file: name of a column -> text."""
    with Path(__file__).with_name(f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
