"""Read the chosen runs of the index: first the columns of the choice, then the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from benchkit.store.index.arrow import SCHEMA, records_to_table, unite
from benchkit.store.index.segments import Bounds, Segment

__all__ = ["Choose", "read_chosen"]

#: Share of chosen rows up to which row groups are read one by one.
_FEW_ROWS = 0.25
#: Takes columns of the runs. Returns them, with other values or more columns if it likes; the mask
#: of the chosen rows, or None for all; and the names of all wanted columns, or None for all.
Choose = Callable[[pa.Table], "tuple[pa.Table, np.ndarray | None, Collection[str] | None]"]


def read_chosen(
    segments: Sequence[Segment],
    repeated: Mapping[str, np.ndarray],
    records: Sequence[dict[str, Any]],
    columns: Collection[str],
    choose: Choose,
    bounds: Bounds,
) -> pa.Table:
    """Return chosen rows of segments and records."""
    parts = [(segment, segment.groups(bounds)) for segment in segments]
    parts = [(segment, groups) for segment, groups in parts if groups]
    tables = [segment.read(columns, groups) for segment, groups in parts]
    head, keep, wanted = choose(unite([*tables, records_to_table(records, columns)]))
    start, chosen = 0, []
    for segment, groups in parts:
        sizes = segment.sizes(groups)
        mask = _mask(keep, start, sum(sizes), segment, groups, repeated)
        part = head.slice(start, sum(sizes))
        start += sum(sizes)
        if mask is not None:
            part = part.filter(pa.array(mask))
            used = [flags.any() for flags in np.split(mask, np.cumsum(sizes)[:-1])]
            mask = mask[np.repeat(used, sizes)]
            groups = [group for group, is_used in zip(groups, used, strict=True) if is_used]
        names = [n for n in segment.columns if wanted is None or n in wanted]
        names = [n for n in names if n not in head.column_names]
        if names:
            part = _joined(part, _read_masked(segment, names, groups, mask))
        chosen.append(part)
    part, rest = head.slice(start), records_to_table(records, wanted)
    part = _joined(part, rest.select([n for n in rest.column_names if n not in head.column_names]))
    chosen.append(part if keep is None else part.filter(pa.array(keep[start:])))
    for segment in segments:  # unknown columns exist also if none of their rows is chosen
        names = [n for n in segment.columns if n not in SCHEMA.names]
        names = [n for n in names if wanted is None or n in wanted]
        if names and not segment.groups(bounds):
            chosen.append(segment.read(names, []))
    table = unite(chosen)
    own = [name for name in head.column_names if name not in columns]  # that `choose` added
    names = [*(name for name in table.column_names if name not in own), *own]
    return table.select([name for name in names if wanted is None or name in wanted])


def _mask(
    keep: np.ndarray | None,
    start: int,
    n_rows: int,
    segment: Segment,
    groups: Sequence[int],
    repeated: Mapping[str, np.ndarray],
) -> np.ndarray | None:
    """Return the mask of the rows of a part; None for all rows."""
    mask = None if keep is None else keep[start : start + n_rows]
    if segment.name in repeated:
        is_read = np.repeat(np.isin(range(segment.n_groups), groups), segment.sizes())
        is_first = ~repeated[segment.name][is_read]
        mask = is_first if mask is None else mask & is_first
    return None if mask is None or mask.all() else mask


def _read_masked(
    segment: Segment, names: Collection[str], groups: Sequence[int], mask: np.ndarray | None
) -> pa.Table:
    """Return the columns of the rows of a mask; None is all rows."""
    if mask is None or not groups or mask.mean() > _FEW_ROWS:
        rest = segment.read(names, groups)
        return rest if mask is None else rest.filter(pa.array(mask))
    # Each row group alone: all columns of a segment need 140 MB.
    parts = np.split(mask, np.cumsum(segment.sizes(groups))[:-1])
    return unite(
        [
            segment.read(names, [group]).filter(pa.array(part))
            for group, part in zip(groups, parts, strict=True)
        ]
    )


def _joined(left: pa.Table, right: pa.Table) -> pa.Table:
    """Return the columns of two tables with the same rows."""
    for name in right.column_names:
        left = left.append_column(name, right[name])
    return left
