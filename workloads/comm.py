"""Communication workloads: bytes between client, scheduler and workers."""

from __future__ import annotations

import time

from _conversations import apart, echoing
from _objects import KINDS, an_object, differs
from _two_workers import two_workers

from benchkit.measure import expect, workload
from benchkit.measure.generate import DATA_MODES

MIB = 2**20
N_SMALL, N_LARGE = 2000, 8
#: How often each size is sent.
ROUNDS = 12
N_CYCLES = 100
N_PIECES = 16
#: How often arrays are copied to all workers: one time is over before much can be seen of it.
N_COPIES = 5
WAIT_S = 60.0


@workload(
    variants={"pieces": ["large", "small"]},
    tags=["transfer", "client", "nightly", "ci[pieces=small]"],
    metrics={"scatter_rate": "MiB/s", "gather_rate": "MiB/s"},
)
def scatter_gather(client, scale, prepared, *, pieces):
    """Scatter arrays from the client to the workers, and gather them again.

    Stresses the client's way to the workers and back: bandwidth with 8 large arrays, time per
    message with 2000 small ones.

    Scale: arrays of 64 MiB or of 32 kiB at the reference, by the grain; their number x the
    fraction, on any cluster. About 2 s on 2 x 1 x 1 GiB.
    Check: the bytes that come back are those that were sent, in their order.
    """
    begin = time.perf_counter()
    futures = client.scatter(prepared, hash=False)
    middle = time.perf_counter()
    back = client.gather(futures)
    end = time.perf_counter()
    return {"back": back, "seconds": [middle - begin, end - middle]}


@scatter_gather.prepare
def _(scale, seed, *, pieces):
    import numpy as np

    count, nbytes = _pieces(scale, pieces)
    return list(np.random.default_rng(seed).integers(0, 256, (count, nbytes), dtype=np.uint8))


@scatter_gather.check
def _(result, scale, prepared, *, pieces):
    import numpy as np

    back = result["back"]
    expect(len(back), equals=len(prepared), what="arrays")
    same = [np.array_equal(a, b) for a, b in zip(back, prepared, strict=True)]
    expect(same, equals=[True] * len(prepared), what="array is what was sent")
    total = sum(array.nbytes for array in prepared) / MIB
    scattered_s, gathered_s = result["seconds"]
    return {"scatter_rate": total / scattered_s, "gather_rate": total / gathered_s}


def _pieces(scale, pieces):
    if pieces == "large":
        return max(2, round(N_LARGE * scale.fraction)), scale.chunk("64 MiB")
    return max(100, round(N_SMALL * scale.fraction)), scale.chunk("32 KiB")


@workload(
    tags=["transfer", "latency", "ci", "nightly"],
    metrics={"latency": "ms", "bandwidth": "MiB/s", "logged_bandwidth": "MiB/s"},
)
def worker_to_worker(client, scale, prepared):
    """Make arrays on one worker and use them on another, in sizes from 1 kB to 64 MiB.

    Stresses the transfer of dependencies. A line through seconds over bytes gives the latency of
    a task that needs another's result and the bandwidth between two workers; the workers' own
    transfer logs give the bandwidth as they see it.

    Scale: eight sizes up to 64 MiB at the reference, by the grain, each 12 times x the fraction.
    About 3 s on 2 x 1 x 1 GiB.
    Check: the checksum of each array where it arrived, and that the log knows of all bytes.
    """
    from distributed import wait

    source, target = prepared["workers"]
    seconds, sums = [], []
    for number, nbytes in enumerate(_sizes(scale)):
        for turn in range(_rounds(scale)):
            made = client.submit(_bytes, number, turn, nbytes, workers=[source], pure=False)
            wait(made)
            begin = time.perf_counter()
            told = client.submit(_checksum, made, workers=[target], pure=False).result()
            seconds.append(time.perf_counter() - begin)
            sums.append(told)
    return {"seconds": seconds, "sums": sums}


@worker_to_worker.prepare
def _(client):
    source, target = two_workers(client)
    return {"workers": [source, target], "before": _received(client, source, target)}


@worker_to_worker.check
def _(client, result, scale, prepared):
    import numpy as np

    rounds, sizes = _rounds(scale), _sizes(scale)
    sent = [(i, turn, nbytes) for i, nbytes in enumerate(sizes) for turn in range(rounds)]
    expect(result["sums"], equals=[_checksum(_bytes(*each)) for each in sent], what="checksums")
    nbytes, busy_s = np.subtract(
        _received(client, *prepared["workers"]), prepared["before"]
    ).tolist()
    expect(nbytes, at_least=rounds * sum(sizes), what="bytes in the log of transfers")
    # The median of each size: a slow moment of the machine is no property of the network.
    medians = np.median(np.reshape(result["seconds"], (len(sizes), rounds)), axis=1)
    slope, latency = np.polyfit(sizes, medians, 1, w=1 / medians)
    return {
        "latency": latency * 1e3,
        "bandwidth": 1 / max(slope, 1e-12) / MIB,
        "logged_bandwidth": nbytes / MIB / busy_s,
    }


def _sizes(scale):
    import numpy as np

    return np.geomspace(1000, scale.chunk("64 MiB"), 8).astype(int).tolist()


def _rounds(scale):
    return max(3, round(ROUNDS * scale.fraction))


@workload(
    variants={"how": ["broadcast", "replicate"]},
    tags=["transfer", "memory", "amm", "nightly", "ci[how=broadcast]"],
    deadline_s=120,
    metrics={"copy_rate": "MiB/s", "reduce_time": "s"},
    version=2,
)
def broadcast_replicate(client, scale, prepared, *, how):
    """Copy arrays of three sizes to every worker, then let the memory manager drop the copies.

    Stresses copies of data: scatter with `broadcast=True`, or `replicate` of what lies on one
    worker; then the active memory manager, which leaves one copy of each.

    Scale: arrays of 4, 64 and 256 MiB at the reference, by the grain, x the fraction; 5 times.
    About 3 s on 2 x 1 x 1 GiB.
    Check: every worker holds each array, one of them does in the end, and its bytes are right.
    """
    rounds = []
    for _ in range(N_COPIES):
        futures = None  # lets go of what was copied before
        futures, told = _copied(client, prepared["arrays"], how)
        rounds.append(told)
    joined = {name: [one for each in rounds for one in each[name]] for name in ("most", "left")}
    seconds = [sum(parts) for parts in zip(*(each["seconds"] for each in rounds), strict=True)]
    return {**joined, "futures": futures, "seconds": seconds}


def _copied(client, arrays, how):
    """Copy arrays to every worker and drop the copies; count them, and tell what both took."""
    futures, begin = [], time.perf_counter()
    for array in arrays:
        if how == "broadcast":
            (future,) = client.scatter([array], broadcast=True, hash=False)
        else:
            (future,) = client.scatter([array], hash=False)
            client.replicate(future)
        futures.append(future)
    copied = time.perf_counter()
    most = _copies(client, futures)
    reducing = time.perf_counter()
    client.amm.run_once()
    while max(left := _copies(client, futures)) > 1 and time.perf_counter() < reducing + WAIT_S:
        client.amm.run_once()
        time.sleep(0.02)
    seconds = [copied - begin, time.perf_counter() - reducing]
    return futures, {"most": most, "left": left, "seconds": seconds}


@broadcast_replicate.prepare
def _(client, scale, seed):
    import numpy as np

    rng = np.random.default_rng(seed)
    sizes = [scale.chunk("4 MiB"), scale.chunk("64 MiB"), scale.chunk("256 MiB")]
    arrays = [rng.bytes(max(1024, int(nbytes * scale.fraction))) for nbytes in sizes]
    running = client.amm.running()
    # It would drop copies while they are made.
    client.amm.stop()
    return {"arrays": arrays, "running": running, "n_workers": len(client.has_what())}


@broadcast_replicate.check
def _(client, result, prepared):
    arrays, n_workers = prepared["arrays"], prepared["n_workers"]
    n = N_COPIES * len(arrays)
    expect(result["most"], equals=[n_workers] * n, what="copies of each array")
    expect(result["left"], equals=[1] * n, what="copies left of each array")
    sums = client.gather(client.map(_checksum, result["futures"], pure=False))
    expect(sums, equals=[_checksum(array) for array in arrays], what="checksums")
    copied_s, reduced_s = result["seconds"]
    total = N_COPIES * n_workers * sum(map(len, arrays)) / MIB
    return {"copy_rate": total / copied_s, "reduce_time": reduced_s}


@broadcast_replicate.cleanup
def _(client, prepared=None):
    if prepared and prepared["running"]:
        client.amm.start()


@workload(
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
    variants={"protocol": ["tcp", "tls", "inproc"]},
    tags=["transfer", "latency", "nightly", "ci[protocol=tcp]"],
    metrics={"connect": "ms", "small_ping": "ms", "large_ping": "ms"},
)
def connect_rate(scale, seed, *, protocol):
    """Open and close connections, and send messages of 20 B and 10 MiB both ways.

    Stresses `distributed.comm` alone, both ends in the client's process and no cluster between:
    the handshake, the time for a message, and the bandwidth.

    Scale: 100 connections, 100 small and 100 large messages, x the fraction; the large ones are
    40 MiB at the reference, by the grain. About 4 s on any cluster.
    Check: each message comes back as it was sent.
    """
    large = scale.chunk("40 MiB")
    return apart(lambda: _converse(protocol, _cycles(scale), [20, large]))


@connect_rate.check
def _(result, scale):
    count = _cycles(scale)
    for name, nbytes in (("small", 20), ("large", scale.chunk("40 MiB"))):
        wanted = [_checksum(_ping(turn, nbytes)) for turn in range(count)]
        expect(result[name], equals=wanted, what=f"checksums of {name} messages")
    expect(result["connected"], equals=count, what="connections")
    connect_s, small_s, large_s = result["seconds"]
    return {
        "connect": connect_s / count * 1e3,
        "small_ping": small_s / count * 1e3,
        "large_ping": large_s / count * 1e3,
    }


async def _converse(protocol, count, sizes):
    from distributed.comm import connect
    from distributed.protocol import to_serialize

    connected, marks = 0, [time.perf_counter()]
    told = []
    async with echoing(protocol) as (address, options):
        for _ in range(count):
            comm = await connect(address, **options)
            connected += 1
            await comm.close()
        marks.append(time.perf_counter())
        comm = await connect(address, **options)
        for nbytes in sizes:
            sums = []
            for turn in range(count):
                await comm.write({"data": to_serialize(_ping(turn, nbytes))})
                sums.append(_checksum((await comm.read())["data"]))
            told.append(sums)
            marks.append(time.perf_counter())
        await comm.close()
    connect_s, small_s, large_s = (marks[i + 1] - marks[i] for i in range(3))
    return {
        "connected": connected,
        "small": told[0],
        "large": told[1],
        "seconds": (connect_s, small_s, large_s),
    }


@workload(
    variants={"compression": ["none", "lz4", "zstd"], "data": list(DATA_MODES)},
    tags=["transfer", "compression", "cpu", "nightly", "ci[compression=none,data=compressible]"],
    metrics={"rate": "MiB/s"},
)
def compression(client, scale, prepared, *, compression):
    """Send arrays from one worker to another over a connection that compresses, or does not.

    Stresses compression against bandwidth: what does not compress should cost a sample and no
    more. Between processes of one machine distributed never compresses, so that the two workers
    open a connection of their own and choose.

    Scale: 0.125 x cluster memory x the fraction, in 16 pieces.
    About 2 s on 2 x 1 x 1 GiB.
    Check: the checksum of each array where it arrived.
    """
    begin = time.perf_counter()
    told = client.run(
        _send, **prepared["send"], compression=compression, workers=[prepared["source"]]
    )
    return {"sums": told[prepared["source"]], "seconds": time.perf_counter() - begin}


@compression.prepare
def _(client, scale, seed, *, compression, data):
    if compression != "none":
        _require_compression(client, compression)
    source, target = two_workers(client)
    send = {
        "address": client.run(_listen, workers=[target])[target],
        "count": N_PIECES,
        "length": max(1000, scale.linear(0.125) // N_PIECES // 8),
        "data": data,
        "seed": seed,
    }
    client.run(_make_pieces, **send, workers=[source])
    return {"source": source, "target": target, "send": send}


@compression.check
def _(result, prepared):
    pieces = _pieces_of(**prepared["send"])
    expect(result["sums"], equals=[_checksum(piece) for piece in pieces], what="checksums")
    return {"rate": sum(piece.nbytes for piece in pieces) / MIB / result["seconds"]}


@compression.cleanup
def _(client, prepared=None):
    if prepared:
        client.run(_listen_no_more)


def _bytes(number, turn, nbytes):
    import numpy as np

    return np.random.default_rng([number, turn]).bytes(nbytes)


def _checksum(data):
    from zlib import crc32

    return crc32(data)


def _received(client, source, target):
    """Return the bytes that the target has had from the source by its log, and the seconds."""
    return client.run(_log_of_transfers, source, workers=[target])[target]


def _log_of_transfers(source, dask_worker):
    log = [entry for entry in dask_worker.transfer_incoming_log if entry["who"] == source]
    return [sum(entry["total"] for entry in log), sum(entry["duration"] for entry in log)]


def _copies(client, futures):
    return [len(holders) for holders in client.who_has(futures).values()]


def _cycles(scale):
    return max(10, round(N_CYCLES * scale.fraction))


def _ping(turn, nbytes):
    return bytes([turn % 256]) * nbytes


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
    """Tell the checksum of each array that comes in; return where to send them."""
    from contextlib import suppress

    from distributed.comm import CommClosedError, get_address_host, listen

    async def answer(comm):
        with suppress(CommClosedError):
            while True:
                await comm.write({"sum": _checksum((await comm.read())["data"])})

    address = dask_worker.address
    host = "127.0.0.1" if address.startswith("inproc") else get_address_host(address)
    dask_worker.benchkit_listener = await listen(f"tcp://{host}:0", answer)
    return dask_worker.benchkit_listener.contact_address


def _listen_no_more(dask_worker):
    listener = getattr(dask_worker, "benchkit_listener", None)
    if listener is not None:
        listener.stop()
        del dask_worker.benchkit_listener
    dask_worker.benchkit_pieces = None


def _pieces_of(count, length, data, seed, **_):
    import numpy as np

    pieces = [np.random.default_rng([seed, i]).random(length) for i in range(count)]
    if data == "compressible":
        for piece in pieces:
            piece[::2] = 0
    return pieces


def _make_pieces(dask_worker, **options):
    dask_worker.benchkit_pieces = _pieces_of(**options)


async def _send(dask_worker, *, address, compression, **_):
    from distributed.comm import connect
    from distributed.protocol import to_serialize

    comm = await connect(address)
    chosen = None if compression == "none" else compression
    comm.handshake_options = {**comm.handshake_options, "compression": chosen}
    sums = []
    for piece in dask_worker.benchkit_pieces:
        await comm.write({"data": to_serialize(piece)})
        sums.append((await comm.read())["sum"])
    await comm.close()
    return sums
