"""Communication workloads: what a message costs below the scheduler."""

from __future__ import annotations

import time
from zlib import crc32

from _comm_pairs import apart, echoing
from _sample_objects import KINDS, an_object, differs
from _two_workers import two_workers

from benchkit.measure import expect, workload
from benchkit.measure.data.random import DATA_MODES

MIB = 2**20
N_CYCLES = 100
N_PIECES = 16
#: How often the pieces are sent.
N_PASSES = 5
#: Half of what compresses is zeros; what lies between is random.
COMPRESSED, NOT_COMPRESSED = 0.6, 0.98


@workload(
    category="comm",
    variants={"kind": list(KINDS)},
    requires=["numpy", "pandas", "pyarrow"],
    tags=["serialization", "cpu", "nightly", "ci[kind=frame]"],
    metrics={"rate_small": "MiB/s", "rate_medium": "MiB/s", "rate_large": "MiB/s"},
)
def protocol(prepared, *, kind):
    """Serialize and deserialize one kind of object in three sizes, without a cluster.

    Stresses `distributed.protocol` alone: what it makes of arrays, frames, tables, nested
    dictionaries and graphs of tasks, and what each message costs however small.

    Scale: objects of 1 kB, 1 MB and 64 MB x the fraction, the small ones many times; nested ones
    of 16 MB at most, for they are walked item by item.
    About 2 s on any cluster.
    Check: what comes back equals what was sent.
    """
    from types import SimpleNamespace

    from distributed.protocol import dumps, loads, to_serialize
    from distributed.protocol.serialize import ToPickle

    # As distributed does itself: graphs are pickled whole, data by its type.
    wrap = ToPickle if kind == "graph" else to_serialize
    back, rates = [], []
    for value, nbytes, times in prepared:
        begin = time.perf_counter()
        for _ in range(times):
            frames = dumps({"op": "put", "data": wrap(value)})
            # What comes over a network lies in memory of its own.
            message = loads([bytes(frame) for frame in frames])
        seconds = time.perf_counter() - begin
        back.append(message["data"])
        rates.append(nbytes * times / MIB / seconds)
    # No collection may be hidden in it: Dask would look for one, inside the clock, in every item.
    return SimpleNamespace(back=back, rates=rates)


@protocol.prepare
def _(scale, seed, *, kind):
    largest = 16e6 if kind == "nested" else 64e6
    sizes = [1000, round(1e6 * scale.fraction), round(largest * scale.fraction)]
    times = [1000, 20, 2]
    return [
        (an_object(kind, nbytes, seed), nbytes, max(1, round(number * scale.fraction)))
        for nbytes, number in zip(sizes, times, strict=True)
    ]


@protocol.check
def _(result, prepared):
    expect(len(result.back), equals=len(prepared), what="objects")
    for back, (value, _, _) in zip(result.back, prepared, strict=True):
        expect(differs(back, value), equals=False, what="object differs from what was sent")
    return dict(zip(["rate_small", "rate_medium", "rate_large"], result.rates, strict=True))


@workload(
    category="comm",
    variants={"protocol": ["tcp", "tls", "inproc"]},
    tags=["transfer", "latency", "nightly", "ci[protocol=tcp]"],
    metrics={"connect": "ms", "small_ping": "ms", "large_ping": "ms"},
    version=2,
)
def connect_rate(scale, seed, *, protocol):
    """Open and close connections, and send messages of 20 B and 10 MiB both ways.

    Stresses `distributed.comm` alone, both ends in the client's process and no cluster between:
    the handshake, the time for a message, and the bandwidth. The metrics are medians, without the
    making of messages and their checksums.

    Scale: 100 connections, 100 small and 100 large messages, x the fraction; the large ones are
    40 MiB at the reference, by the grain, so the time grows with a thread's memory, not with the
    cluster. About 2 s on 2 x 1 x 1 GiB.
    Check: each message comes back as it was sent.
    """
    large = scale.chunk("40 MiB")
    return apart(lambda: _converse(protocol, _cycles(scale), [20, large]))


@connect_rate.check
def _(result, scale):
    import statistics

    count = _cycles(scale)
    for name, nbytes in (("small", 20), ("large", scale.chunk("40 MiB"))):
        wanted = [crc32(_ping(turn, nbytes)) for turn in range(count)]
        expect(result[name], equals=wanted, what=f"checksums of {name} messages")
    expect(result["connected"], equals=count, what="connections")
    return {
        name: statistics.median(seconds) * 1e3
        for name, seconds in zip(
            ["connect", "small_ping", "large_ping"], result["seconds"], strict=True
        )
    }


async def _converse(protocol, count, sizes):
    from distributed.comm import connect

    async with echoing(protocol) as (address, options):
        connecting = []
        for _ in range(count):
            begin = time.perf_counter()
            comm = await connect(address, **options)
            await comm.close()
            connecting.append(time.perf_counter() - begin)
        comm = await connect(address, **options)
        small, large = [await _pinged(comm, count, nbytes) for nbytes in sizes]
        await comm.close()
    return {
        "connected": len(connecting),
        "small": small[0],
        "large": large[0],
        "seconds": [connecting, small[1], large[1]],
    }


async def _pinged(comm, count, nbytes):
    """Send messages there and back; return the checksums of what came, and the seconds of each."""
    from distributed.protocol import to_serialize

    sums, seconds = [], []
    for turn in range(count):
        message = {"data": to_serialize(_ping(turn, nbytes))}
        begin = time.perf_counter()
        await comm.write(message)
        back = await comm.read()
        seconds.append(time.perf_counter() - begin)
        sums.append(crc32(back["data"]))
    return sums, seconds


def _cycles(scale):
    return max(10, round(N_CYCLES * scale.fraction))


def _ping(turn, nbytes):
    return bytes([turn % 256]) * nbytes


@workload(
    category="comm",
    variants={"compression": ["none", "lz4", "zstd"], "data": list(DATA_MODES)},
    tags=["transfer", "compression", "cpu", "nightly", "ci[compression=none,data=compressible]"],
    metrics={"rate": "MiB/s", "wire_share": "1"},
    version=2,
)
def compression(client, scale, prepared, *, compression):
    """Send arrays from one worker to another over a connection that compresses, or does not.

    Stresses compression against bandwidth: what does not compress should cost a sample and no
    more. Between processes of one machine distributed never compresses, so that the two workers
    open a connection of their own and choose. The rate is that of the middle one of five passes.

    Scale: 0.1 x one worker's memory x the fraction, in 16 pieces, five times.
    About 2 s on 2 x 1 x 1 GiB.
    Check: the checksum of each array where it arrived last, and the bytes that were sent for one:
    fewer where it was to be compressed and can be.
    """
    source, target = [prepared["source"]], [prepared["target"]]
    told = client.run(_send, address=prepared["address"], compression=compression, workers=source)
    return {**told[source[0]], "sums": client.run(_sums_of_arrived, workers=target)[target[0]]}


@compression.prepare
def _(client, scale, seed, *, compression, data):
    if compression != "none":
        _require_compression(client, compression)
    source, target = two_workers(client)
    # By one worker, not by all: it holds them all at once, in memory that is never spilled.
    nbytes = 0.1 * scale.memory / scale.workers * scale.fraction
    pieces = {"length": max(1000, int(nbytes) // N_PIECES // 8), "data": data, "seed": seed}
    client.run(_make_pieces, **pieces, workers=[source])
    address = client.run(_listen, workers=[target])[target]
    return {"source": source, "target": target, "address": address, "pieces": pieces}


@compression.check
def _(result, prepared, *, compression, data):
    import statistics

    pieces = _pieces_of(**prepared["pieces"])
    expect(result["sums"], equals=[crc32(piece) for piece in pieces], what="checksums")
    expect(len(result["seconds"]), equals=N_PASSES, what="passes")
    nbytes = sum(piece.nbytes for piece in pieces)
    share = result["wire_bytes"] / N_PASSES / nbytes
    if compression == "none" or data == "uncompressible":
        expect(share, at_least=NOT_COMPRESSED, what="bytes sent for one")
    else:
        expect(share, at_least=0.01, at_most=COMPRESSED, what="bytes sent for one")
    return {"rate": nbytes / MIB / statistics.median(result["seconds"]), "wire_share": share}


@compression.cleanup
def _(client, prepared=None):
    if prepared:
        client.run(_listen_no_more)


# -- a connection between two workers that compresses ---------------------------------------------


def _require_compression(client, name):
    from benchkit.measure.errors import MissingPackage

    if not all(client.run(_has_compression, name).values()):
        package = {"zstd": "zstandard"}.get(name, name)
        raise MissingPackage(f"{package}: not installed on all workers")


def _has_compression(name):
    from distributed.protocol.compression import compressions

    return name in compressions


async def _listen(dask_worker):
    """Keep the arrays that come in, the last of each place; return where to send them."""
    from contextlib import suppress

    from distributed.comm import CommClosedError, get_address_host, listen

    arrived = dask_worker.benchkit_arrived = {}

    async def answer(comm):
        with suppress(CommClosedError):
            while True:
                message = await comm.read()
                arrived[message["place"]] = message["data"]
                await comm.write("arrived")

    address = dask_worker.address
    host = "127.0.0.1" if address.startswith("inproc") else get_address_host(address)
    dask_worker.benchkit_listener = await listen(f"tcp://{host}:0", answer)
    return dask_worker.benchkit_listener.contact_address


def _listen_no_more(dask_worker):
    listener = getattr(dask_worker, "benchkit_listener", None)
    if listener is not None:
        listener.stop()
        del dask_worker.benchkit_listener
    dask_worker.benchkit_pieces = dask_worker.benchkit_arrived = None


def _sums_of_arrived(dask_worker):
    return [crc32(array) for _, array in sorted(dask_worker.benchkit_arrived.items())]


def _pieces_of(*, length, data, seed):
    import numpy as np

    pieces = [np.random.default_rng([seed, i]).random(length) for i in range(N_PIECES)]
    if data == "compressible":
        for piece in pieces:
            piece[::2] = 0
    return pieces


def _make_pieces(dask_worker, **options):
    dask_worker.benchkit_pieces = _pieces_of(**options)


async def _send(dask_worker, *, address, compression):
    """Send all pieces, pass after pass; return the seconds of each and the bytes of all."""
    from distributed.comm import connect
    from distributed.protocol import to_serialize

    comm = await connect(address)
    chosen = None if compression == "none" else compression
    comm.handshake_options = {**comm.handshake_options, "compression": chosen}
    seconds, wire_bytes = [], 0
    for _ in range(N_PASSES):
        begin = time.perf_counter()
        for place, piece in enumerate(dask_worker.benchkit_pieces):
            wire_bytes += await comm.write({"place": place, "data": to_serialize(piece)})
            await comm.read()
        seconds.append(time.perf_counter() - begin)
    await comm.close()
    return {"seconds": seconds, "wire_bytes": wire_bytes}
