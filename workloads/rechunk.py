"""Rechunk workloads: one array in other chunks."""

from __future__ import annotations

import dask
from _fingerprints import fingerprint

from benchkit.measure import expect, random_array, workload
from benchkit.measure.errors import MissingPackage

METHODS = ["tasks", "p2p-disk", "p2p-memory"]
P2P = ("p2p[method=p2p-disk]", "p2p[method=p2p-memory]")
#: Sizes of chunks at reference memory: a fine grid, and the default of Dask.
SMALL, AUTO = 8.5 * 2**20, 128 * 2**20
#: Names of both sizes, for workloads with chunks of either size.
CHUNKS = {"small": SMALL, "auto": AUTO}


@workload(
    variants={"chunks": list(CHUNKS), "method": METHODS},
    tags=[
        "shuffle",
        "transfer",
        "first-twelve[chunks=small,method=p2p-disk]",
        "quick[chunks=small,method=p2p-disk]",
        "nightly",
        "ci[chunks=small,method=p2p-disk]",
        *P2P,
    ],
    requires=["numpy", "dask.array"],
    version=2,
)
def swap_axes_in_memory(scale, seed, *, chunks, method):
    """Rechunk an array in memory from whole columns to whole rows.

    Every output chunk needs a piece of every input chunk. Stresses the shuffle: with "tasks" the
    graph grows with the square of the number of chunks, with P2P only transfers and buffers do, on
    disk or in memory.

    Scale: 0.12 x cluster memory, linear; a chunk is 32 or 128 MiB at reference memory: 8.5 MiB, as
    in other workloads, would make millions of pieces. About 3 s on 2 x 1 x 1 GiB.
    Check: the sum and the sum weighted by row and column equal those before the swap.
    """
    source, rows = _columns_in_memory(scale, seed, chunks)
    return _rechunked(source, rows, method)


@swap_axes_in_memory.prepare
def _(client, *, method):
    _warm_up(method)


@swap_axes_in_memory.check
def _(result, scale, seed, *, chunks):
    source, _ = _columns_in_memory(scale, seed, chunks)
    _expect_same(result, source)


def _columns_in_memory(scale, seed, chunks):
    """Return the array in chunks of whole columns, and the chunks of whole rows."""
    side, _ = scale.linear(0.12, ("x", "x"))
    nbytes = scale.chunk(AUTO / 4 if chunks == "small" else AUTO)
    step = min(max(1, round(nbytes / 8 / side)), -(-side // 3))
    return random_array((side, side), chunks=(side, step), seed=seed), (step, side)


@workload(
    variants={"method": ["tasks", "p2p-disk"]},
    tags=["shuffle", "transfer", "spill", "nightly", "ci[method=tasks]", P2P[0]],
    requires=["numpy", "dask.array"],
)
def swap_axes_out_of_core(scale, seed, *, method):
    """Rechunk an array larger than memory from whole columns to whole rows.

    Every output chunk needs a piece of every input chunk, and no output can be finished before the
    last input exists. Stresses storage of the pieces: they are spilled with "tasks", and written to
    files with P2P.

    Scale: 1.1 x cluster memory, linear; a chunk is 64 MiB at reference memory.
    About 20 s on 2 x 1 x 1 GiB with tasks; there P2P sometimes lost workers, whose unmanaged memory
    grew to their limit, also with larger and with smaller chunks.
    Check: the sum and the sum weighted by row and column equal those before the swap.
    """
    source, rows = _columns_out_of_core(scale, seed)
    return _rechunked(source, rows, method)


@swap_axes_out_of_core.prepare
def _(client, *, method):
    _warm_up(method)


@swap_axes_out_of_core.check
def _(result, scale, seed):
    source, _ = _columns_out_of_core(scale, seed)
    _expect_same(result, source)


def _columns_out_of_core(scale, seed):
    side, _ = scale.linear(1.1, ("x", "x"))
    step = max(1, round(scale.chunk(AUTO / 2) / 8 / side))
    return random_array((side, side), chunks=(side, step), seed=seed), (step, side)


@workload(
    variants={"chunks": list(CHUNKS), "method": METHODS},
    tags=["shuffle", "transfer", "nightly", "ci[chunks=small,method=p2p-memory]", *P2P],
    requires=["numpy", "dask.array"],
)
def tiles_to_rows(scale, seed, *, chunks, method):
    """Rechunk an array from small squares to large chunks that are whole along one axis.

    An output chunk needs the tiles of one stripe, so that stripes are independent. Stresses whether
    the scheduler uses this: stripes that are done one after the other need little memory and few
    transfers, with "tasks" as with P2P.

    Scale: 0.4 x cluster memory, linear; a tile is 8.5 or 128 MiB and an output chunk 128 MiB, both
    at reference memory. About 6 s on 2 x 1 x 1 GiB.
    Check: the sum and the sum weighted by row and column equal those before.
    """
    source, stripes = _tiles(scale, seed, chunks)
    return _rechunked(source, stripes, method)


@tiles_to_rows.prepare
def _(client, *, method):
    _warm_up(method)


@tiles_to_rows.check
def _(result, scale, seed, *, chunks):
    source, _ = _tiles(scale, seed, chunks)
    _expect_same(result, source)


def _tiles(scale, seed, chunks):
    """Return the array in squares, and the chunks of whole stripes."""
    side, _ = scale.linear(0.4, ("x", "x"))
    width = max(1, round(scale.chunk(AUTO) / 8 / side))
    source = random_array((side, side), chunks=_square(scale, CHUNKS[chunks]), seed=seed)
    return source, (side, width)


@workload(
    variants={"chunks": list(CHUNKS), "method": METHODS},
    tags=["shuffle", "transfer", "nightly", "ci[chunks=small,method=p2p-memory]", *P2P],
    requires=["numpy", "dask.array"],
)
def adjacent_groups(scale, seed, *, chunks, method):
    """Rechunk an array so that chunks of two in a group become chunks of five.

    The third of five input chunks along the second axis belongs to two outputs, so that neighbours
    share some inputs. Stresses detection of problems that are nearly, but not fully, independent.

    Scale: 0.4 x cluster memory, linear, 10 x 10 000 values a row; an input chunk is 8.5 or 128 MiB
    and an output chunk 128 MiB, both at reference memory. About 5 s on 2 x 1 x 1 GiB.
    Check: the sum and the sum weighted by all three positions equal those before.
    """
    source, groups = _groups(scale, seed, chunks)
    return _rechunked(source, groups, method)


@adjacent_groups.prepare
def _(client, *, method):
    _warm_up(method)


@adjacent_groups.check
def _(result, scale, seed, *, chunks):
    source, _ = _groups(scale, seed, chunks)
    _expect_same(result, source)


def _groups(scale, seed, chunks):
    n_rows = max(4, round(scale.linear(0.4) / 8 / 10 / 10_000))
    before = max(1, round(scale.chunk(CHUNKS[chunks]) / 8 / 2 / 5000))
    after = max(2, round(scale.chunk(AUTO) / 8 / 5 / 10_000))
    source = random_array((n_rows, 10, 10_000), chunks=(before, 2, 5000), seed=seed)
    return source, (after, 5, 10_000)


@workload(
    variants={"method": METHODS},
    tags=["shuffle", "transfer", "nightly", "ci[method=tasks]", *P2P],
    requires=["numpy", "dask.array"],
)
def heal_oversplit(scale, seed, *, method):
    """Rechunk an array from too many small squares to squares of a suitable size.

    Sides grow by about 3.9, so that most inputs belong to one output and some to two or four.
    Stresses merging: little data is exchanged, and P2P, which shuffles all of it, should have no
    advantage. If P2P is much slower than "tasks", that is a finding.

    Scale: 0.4 x cluster memory, linear; a chunk is 8.5 MiB before and 128 MiB after, both at
    reference memory. About 6 s on 2 x 1 x 1 GiB.
    Check: the sum and the sum weighted by row and column equal those before.
    """
    source, healed = _oversplit(scale, seed)
    return _rechunked(source, healed, method)


@heal_oversplit.prepare
def _(client, *, method):
    _warm_up(method)


@heal_oversplit.check
def _(result, scale, seed):
    source, _ = _oversplit(scale, seed)
    _expect_same(result, source)


def _oversplit(scale, seed):
    shape = scale.linear(0.4, ("x", "x"))
    return random_array(shape, chunks=_square(scale, SMALL), seed=seed), _square(scale, AUTO)


@workload(
    variants={"method": METHODS},
    tags=["shuffle", "transfer", "graph", "nightly", "ci[method=p2p-disk]", *P2P],
    requires=["numpy", "dask.array"],
)
def pancake_to_pencil(scale, seed, *, method):
    """Rechunk maps over time from single time steps to long series of small regions.

    Many analyses of weather archives begin with this: data are written by time step, and read by
    position. Each time step is split into 25 regions. Stresses the graph, which has a piece for
    each time step and region (dask#11162, distributed#8656), its submission, and the buffers of
    P2P.

    Scale: 0.2 x cluster memory, linear, float32; a map is 721 x 1440 values at reference memory,
    and a series covers 1/threads of the time. About 6 s on 2 x 1 x 1 GiB.
    Check: the sum and the sum weighted by time, latitude and longitude equal those before.
    """
    source, pencils = _pancakes(scale, seed)
    return _rechunked(source, pencils, method)


@pancake_to_pencil.prepare
def _(client, *, method):
    _warm_up(method)


@pancake_to_pencil.check
def _(result, scale, seed):
    source, _ = _pancakes(scale, seed)
    _expect_same(result, source)


def _pancakes(scale, seed):
    """Return the array in chunks of one time step, and the chunks of long series."""
    height = max(10, round((scale.chunk(721 * 1440 * 4) / 4 / 2) ** 0.5))
    width = 2 * height
    times = max(2 * scale.threads, round(scale.linear(0.2) / 4 / height / width))
    source = random_array((times, height, width), chunks=(1, height, width), seed=seed)
    pencils = (-(-times // scale.threads), -(-height // 5), -(-width // 5))
    return source.astype("float32"), pencils


def _square(scale, reference_bytes):
    side = max(2, round((scale.chunk(reference_bytes) / 8) ** 0.5))
    return side, side


def _rechunked(source, chunks, method):
    """Return the fingerprint of an array after rechunking."""
    with _rechunk_by(method):
        return fingerprint(source.rechunk(chunks)).compute()


def _expect_same(result, source):
    wanted = fingerprint(source).compute()
    expect(result[0], close_to=wanted[0], rtol=1e-9, what="sum")
    expect(result[1], close_to=wanted[1], rtol=1e-9, what="sum weighted by position")


def _warm_up(method):
    # The first P2P shuffle of a cluster takes seconds for imports and plugins.
    with _rechunk_by(method):
        random_array((20, 20), chunks=(20, 10)).rechunk((10, 20)).sum().compute()


def _rechunk_by(method):
    """Return a context in which Dask rechunks by this method."""
    kind, _, storage = method.partition("-")
    options = {"array.rechunk.method": kind}
    if storage:
        names = ("distributed.p2p.storage.disk", "distributed.p2p.disk")
        known = [name for name in names if dask.config.get(name, None) is not None]
        if not known and storage == "memory":
            raise MissingPackage(
                "this release of distributed keeps P2P data on disk only: "
                "pip install 'distributed>=2023.11'"
            )
        # Some releases require that fusion is disabled for P2P.
        options |= {known[0]: storage == "disk"} if known else {"optimization.fuse.active": False}
    return dask.config.set(options)
