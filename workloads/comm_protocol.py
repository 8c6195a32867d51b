"""Communication workloads: cost of messages below the scheduler."""

from __future__ import annotations

import time
from zlib import crc32

from _comm_pairs import echoing, run_in_new_thread
from _sample_objects import KINDS, differs, sample_object
from _two_workers import two_workers

from benchkit.measure import expect, workload
from benchkit.measure.data.random import DATA_MODES

MIB = 2**20
N_CYCLES = 100
N_PIECES = 16
#: Passes over the pieces.
N_PASSES = 5
#: Half of compressible data are zeros, the other half is random.
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

    Stresses `distributed.protocol` alone, with arrays, frames, tables, nested dictionaries and
    graphs of tasks, and the fixed cost of small messages.

    Scale: objects of 1 kB, 1 MB and 64 MB x fraction, the small ones many times; nested
    dictionaries of 16 MB at most, because each item is visited.
    About 2 s on any cluster.
    Check: deserialized objects equal the originals.
    """
    from types import SimpleNamespace

    from distributed.protocol import dumps, loads, to_serialize
    from distributed.protocol.serialize import ToPickle

    # As in distributed: graphs are pickled, data is serialized by its type.
    wrap = ToPickle if kind == "graph" else to_serialize
    back, rates = [], []
    for value, nbytes, times in prepared:
        begin = time.perf_counter()
        for _ in range(times):
            frames = dumps({"op": "put", "data": wrap(value)})
            # Data that comes over a network is in separate memory.
            message = loads([bytes(frame) for frame in frames])
        seconds = time.perf_counter() - begin
        back.append(message["data"])
        rates.append(nbytes * times / MIB / seconds)
    # Hide the objects from Dask, which would search them for collections while timed.
    return SimpleNamespace(back=back, rates=rates)


@protocol.prepare
def _(scale, seed, *, kind):
    largest = 16e6 if kind == "nested" else 64e6
    sizes = [1000, round(1e6 * scale.fraction), round(largest * scale.fraction)]
    times = [1000, 20, 2]
    return [
        (sample_object(kind, nbytes, seed), nbytes, max(1, round(number * scale.fraction)))
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
    """Open and close connections, and send messages of 20 B and 10 MiB in both directions.

    Stresses `distributed.comm` alone, with both ends in the client process: the handshake, the time
    per message, and the bandwidth. Metrics are medians; making messages and checksums is not timed.

    Scale: 100 connections, 100 small and 100 large messages, x fraction; large messages are 40 MiB
    at reference memory, so that the time grows with the memory of a thread, not with the cluster.
    About 2 s on 2 x 1 x 1 GiB.
    Check: each message returns unchanged.
    """
    large = scale.chunk("40 MiB")
    return run_in_new_thread(lambda: _converse(protocol, _cycles(scale), [20, large]))


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
    """Send messages that are sent back; return checksums of the replies and seconds of each."""
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
    """Send arrays from one worker to another over a connection with or without compression.

    Stresses compression against bandwidth: incompressible data should cost one sample only.
    Distributed never compresses between processes of one machine, therefore the two workers open
    their own connection. The rate is the median of five passes.

    Scale: 0.1 x the memory of a worker x fraction, in 16 pieces, five times.
    About 2 s on 2 x 1 x 1 GiB.
    Check: the checksum of each array at its destination in the last pass, and the bytes sent: fewer
    if compression was enabled and possible.
    """
    source, target = [prepared["source"]], [prepared["target"]]
    reports = client.run(
        _send, address=prepared["address"], compression=compression, workers=source
    )
    return {**reports[source[0]], "sums": client.run(_sums_of_arrived, workers=target)[target[0]]}


@compression.prepare
def _(client, scale, seed, *, compression, data):
    if compression != "none":
        _require_compression(client, compression)
    source, target = two_workers(client)
    # Memory of one worker, not of all: it holds all pieces at once and cannot spill them.
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


# -- a connection between two workers, with compression -------------------------------------------


def _require_compression(client, name):
    from benchkit.measure.errors import MissingPackage

    if not all(client.run(_has_compression, name).values()):
        package = {"zstd": "zstandard"}.get(name, name)
        raise MissingPackage(f"{package}: not installed on all workers")


def _has_compression(name):
    from distributed.protocol.compression import compressions

    return name in compressions


async def _listen(dask_worker):
    """Keep received arrays, the last for each number; return the address."""
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
    """Send all pieces in each pass; return the seconds of each pass and the bytes of all."""
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
