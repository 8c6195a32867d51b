"""Parquet workloads: download of whole files over HTTP, by five common methods."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

from _scratch_data import new_folder, remove_folder

from benchkit.measure import expect, workload

#: Latency of the server, and duration of the transfer of a file.
DELAY_S, FILE_S = 0.03, 0.4
FILES_PER_THREAD = 5
COLUMNS = 8
#: Serves one file under any name at a given speed, until its standard input is closed.
_SERVER = """
import os, re, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

path, host, delay, rate = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
content = open(path, "rb").read()
STEP = 1 << 16

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self, body=True):
        time.sleep(delay)
        asked = re.fullmatch(r"bytes=(\\d+)-(\\d*)", self.headers.get("Range", ""))
        first, last = 0, len(content) - 1
        if asked:
            first, last = int(asked[1]), min(last, int(asked[2] or last))
        self.send_response(206 if asked else 200)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(last + 1 - first))
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.end_headers()
        begin, sent = time.perf_counter(), 0
        while body and first <= last:
            part = content[first : min(first + STEP, last + 1)]
            self.wfile.write(part)
            first, sent = first + len(part), sent + len(part)
            time.sleep(max(0.0, begin + sent / rate - time.perf_counter()))

    def do_HEAD(self):
        self.do_GET(body=False)

    def log_message(self, *args):
        pass

server = ThreadingHTTPServer((host, 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
sys.stdin.read()
"""


@workload(
    category="parquet",
    variants={"reader": ["raw", "fsspec", "pandas", "pandas-bytes", "dask"]},
    tags=["io", "latency", "ci[reader=dask]", "nightly"],
    requires=["numpy", "pandas", "pyarrow", "fsspec", "aiohttp", "dask.dataframe"],
    metrics={"over_ideal": "1", "throughput": "MiB/s"},
)
def download_throughput(client, prepared, *, reader):
    """Download Parquet files from a web server of known speed, by one of five methods.

    "raw" and "fsspec" download bytes, by one request of the standard library or by fsspec; "pandas"
    reads the URL, "pandas-bytes" the bytes of "raw", and "dask" is a frame of all files. The server
    waits 0.03 s and limits each connection so that a file takes 0.4 s; no file is requested twice,
    as stores become faster then (coiled/benchmarks#821). Stresses little of Dask: time in excess of
    that of the server is overhead of the reader.

    Scale: 5 files per thread x fraction, of 1/64 of its memory each.
    About 3 s on 2 x 1 x 1 GiB.
    Check: rows and sum of each file, by the chosen method.
    """
    from distributed import wait

    begin = time.perf_counter()
    if reader == "dask":
        import dask.dataframe as dd

        frame = dd.read_parquet(prepared["urls"])
        meta = {"rows": int, "total": float}
        reports = frame.map_partitions(_describe, meta=meta).compute().to_dict("records")
    else:
        futures = client.map(_fetch, prepared["urls"], reader=reader, pure=False)
        wait(futures)
    seconds = time.perf_counter() - begin
    if reader in ("raw", "fsspec"):  # outside of the measured download
        futures = client.map(_parse_and_describe, futures, pure=False)
    if reader != "dask":
        reports = client.gather(futures)
    return {"reports": reports, "seconds": seconds}


@download_throughput.prepare
def _(client, scale, seed):
    import numpy as np
    import pandas as pd
    from distributed.utils import get_ip

    path = Path(new_folder()) / "file.parquet"
    rows = max(1000, int(scale.memory_per_thread / 64 / 8 / COLUMNS))
    values = np.random.default_rng(seed).random((rows, COLUMNS))
    frame = pd.DataFrame(values, columns=[f"x{i}" for i in range(COLUMNS)])
    frame.to_parquet(path, index=False, compression=None)
    address = client.scheduler.address
    local = "127.0.0.1" in address or address.startswith("inproc://")
    host = "127.0.0.1" if local else get_ip()
    nbytes = path.stat().st_size
    options = [str(path), host, str(DELAY_S), str(nbytes / FILE_S)]
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    port = int(server.stdout.readline())
    count = max(4, round(FILES_PER_THREAD * scale.threads * scale.fraction))
    return {
        "urls": [f"http://{host}:{port}/{uuid4().hex}.parquet" for _ in range(count)],
        "known": _describe(frame).to_dict("records")[0],
        "nbytes": nbytes,
        "server": server,
        "folder": path.parent,
    }


@download_throughput.check
def _(result, scale, prepared):
    count, known = len(prepared["urls"]), prepared["known"]
    rows = [each["rows"] for each in result["reports"]]
    expect(rows, equals=[known["rows"]] * count, what="rows of each file")
    totals = [each["total"] for each in result["reports"]]
    expect(totals, close_to=[known["total"]] * count, rtol=1e-12, what="sum of each file")
    seconds, nbytes = result["seconds"], count * prepared["nbytes"]
    # If files are not a multiple of threads, some threads wait for the last file.
    ideal = -(-count // scale.threads) * (DELAY_S + FILE_S)
    return {"over_ideal": seconds / ideal, "throughput": nbytes / 2**20 / seconds}


@download_throughput.cleanup
def _(prepared=None):
    if prepared is not None:
        prepared["server"].communicate()
        remove_folder(prepared)


def _fetch(url, *, reader):
    import io
    from urllib.request import urlopen

    import fsspec
    import pandas as pd

    if reader == "pandas":
        return _describe(pd.read_parquet(url)).to_dict("records")[0]
    if reader == "fsspec":
        with fsspec.open(url) as file:
            return file.read()
    with urlopen(url) as answer:
        data = answer.read()
    if reader == "pandas-bytes":
        return _describe(pd.read_parquet(io.BytesIO(data))).to_dict("records")[0]
    return data


def _parse_and_describe(data):
    import io

    import pandas as pd

    return _describe(pd.read_parquet(io.BytesIO(data))).to_dict("records")[0]


def _describe(frame):
    import pandas as pd

    return pd.DataFrame({"rows": [len(frame)], "total": [float(frame.to_numpy().sum())]})
