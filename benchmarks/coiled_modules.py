"""Run modules of coiled/benchmarks unmodified: ``python benchmarks/coiled_modules.py CLONE ...``.

CLONE is a checkout of github.com/coiled/benchmarks; further arguments are modules below its folder
tests/, by default all of `MODULES`. They run with two files replaced, as on the page of the guide,
on a LocalCluster; what they read from S3 is made up, with few rows, on a server of the package moto
in this process. The TPC-H data are of scale factor 0.01. Prints, and asserts nothing;
``--write-docs`` replaces the rows of these modules in docs/guides/coiled-modules.md.
"""

import argparse
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from datetime import date
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
import zarr

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

from validation.docs_tables import docs_tables, show_table  # noqa: E402
from validation.s3_server import ACCESS_KEY, SECRET_KEY, emulator, variables  # noqa: E402

from benchkit.experiment.paths import collect_workloads  # noqa: E402
from benchkit.formatting import counted, format_seconds  # noqa: E402
from benchkit.measure.data.dataset import dataset  # noqa: E402
from benchkit.store.store import Store  # noqa: E402

TABLES = {"modules": ("module", "result", "needs", "tried")}
_ENVIRONMENT = """
cluster: {{n_workers: 2, threads_per_worker: {threads}, memory_limit: {memory}}}
dask: {{distributed: {{worker: {{memory: {{spill: false, pause: false, terminate: false}}}}}}}}
"""
_LINE = "from benchkit.pytest_plugin.reference import *\n"
_ENDED = re.compile(r"^tests/.{1,300}? (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b", re.MULTILINE)
_WORDS = {"XFAIL": "failed as expected", "ERROR": "with an error"}


class Module(NamedTuple):
    """How a module runs."""

    needs: str = ""
    options: tuple[str, ...] = ()
    threads: int = 1
    memory: str = "450 MiB"  # of a worker: the data are scaled to it


_S3, _TPCH = "S3 server", ("--local", "--scale", "1", "--no-restart")
_SMALL = "150 MiB"
MODULES = {
    "test_utils_test": Module(),
    "benchmarks/test_array": Module("8 threads per worker", threads=8, memory="225 MiB"),
    "benchmarks/test_csv": Module(_S3),
    "benchmarks/test_custom": Module(),
    "benchmarks/test_dataframe": Module(),
    "benchmarks/test_futures": Module("4 threads per worker", threads=4),
    "benchmarks/test_h2o": Module(_S3),
    "benchmarks/test_join": Module(_S3, memory=_SMALL),
    "benchmarks/test_rechunk": Module(memory=_SMALL),
    "benchmarks/test_spill": Module(memory=_SMALL),
    "benchmarks/test_work_stealing": Module("8 threads per worker", threads=8),
    "benchmarks/test_xgboost": Module(f"{_S3}, xgboost, dask-ml"),
    "benchmarks/test_zarr": Module(_S3),
    "runtime/test_cluster_creation": Module(),
    "runtime/test_xgboost": Module(f"{_S3}, xgboost, dask-ml"),
    "stability/test_array": Module(),
    "tpch/test_dask": Module("TPC-H", _TPCH),
    "tpch/test_duckdb": Module("TPC-H, DuckDB 1", _TPCH),
    "tpch/test_optimization": Module("TPC-H in S3", ("--cloud", "--scale", "1", "--no-restart")),
    "tpch/test_polars": Module("TPC-H", _TPCH),
    "workflows/test_embarrassingly_parallel": Module(_S3, ("--run-workflows",)),
    "workflows/test_from_csv_to_parquet": Module(_S3, ("--run-workflows",)),
    "workflows/test_uber_lyft": Module(_S3, ("--run-workflows",)),
}

# -- data with the names and columns of the suite's -----------------------------------------------


def write_parquet(folder: Path, frame: pd.DataFrame, n_files: int) -> None:
    folder.mkdir(parents=True)
    for number, rows in enumerate(np.array_split(np.arange(len(frame)), n_files)):
        frame.iloc[rows].to_parquet(folder / f"part-{number:03d}.parquet")


def rides(random: np.random.Generator, n: int) -> pd.DataFrame:
    """Return rides of taxis with the columns that the suite reads."""
    picked = pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 9e6, n), unit="s")
    return pd.DataFrame({
        "hvfhs_license_num": random.choice(["HV0002", "HV0003", "HV0004", "HV0005"], n),
        "PULocationID": random.integers(1, 260, n),
        "DOLocationID": random.integers(1, 260, n),
        "trip_miles": random.gamma(2, 2, n),
        "trip_time": random.gamma(2, 300, n).astype(int),
        "tolls": random.gamma(1, 1, n),
        "tips": random.integers(0, 5, n).astype(float),
        "congestion_surcharge": random.choice([0.0, 2.75], n),
        "airport_fee": random.choice(["None", "2.5"], n),
        "wav_request_flag": random.choice(["Y", "N"], n),
        "on_scene_datetime": pd.Series(picked).where(random.random(n) < 0.9),
        "pickup_datetime": picked,
    })  # fmt: skip


def write_taxis(root: Path, random: np.random.Generator) -> None:
    """Write rides as they are, and as the suite's first test of XGBoost leaves them."""
    frame = rides(random, 20_000)
    write_parquet(root / "coiled-datasets/uber-lyft-tlc", frame, 4)
    suite = root / "coiled-runtime-ci/xgboost"
    write_parquet(suite / "nyc-uber-lyft-input.parquet", frame, 4)
    zones = pd.DataFrame({"LocationID": np.arange(1, 261)})
    zones["Borough"] = np.resize(["Manhattan", "Bronx", "Queens", "EWR"], len(zones))
    zones.to_csv(suite / "taxi+_zone_lookup.csv", index=False)
    names = ["hvfhs_license_num", "PULocationID", "DOLocationID", "wav_request_flag"]
    ready = frame[["trip_miles", "trip_time", "tolls", *names]]
    ready = ready.astype(dict.fromkeys(names, "category"))
    write_parquet(suite / "nyc-uber-lyft-preprocessed.parquet", ready, 4)
    yellow = root / "coiled-runtime-ci/nyc-tlc/yellow_tripdata_2019_csv"
    yellow.mkdir(parents=True)
    columns = ("payment_type", "VendorID", "passenger_count", "RatecodeID")
    for month in range(1, 4):
        table = pd.DataFrame({name: random.integers(1, 6, 5000) for name in columns})
        table.assign(tip_amount=random.gamma(1, 2, 5000)).to_csv(
            yellow / f"yellow_tripdata_2019-{month:02d}.csv", index=False
        )


def write_tables(root: Path, random: np.random.Generator) -> None:
    """Write the tables of h2o, of the training of a model, and of GDELT."""
    made = dataset("h2o", rows=10_000, groups=10, files=5).path
    shutil.copytree(made, root / "coiled-datasets/h2o-benchmark/N_1e8_K_1e2_parquet")
    frame = pd.DataFrame(random.random((6000, 9)), columns=[*"abcdefgh", "target"])
    write_parquet(root / "coiled-datasets/synthetic-data/synth-reg-104GB.parquet", frame, 30)
    events = root / "gdelt-open-data/events"
    events.mkdir(parents=True)
    for year in (1979, 1980):
        lines = []
        for number in range(200):
            cells = [str(number)] * 57 + [f"https://www.nytimes.com/{year}/{number}"]
            lines.append("\t".join(cells))
        (events / f"{year}.csv").write_text("\n".join(lines) + "\n")


def write_papers(root: Path) -> None:
    """Write archives of papers: matplotlib is named in half of 2005-06 and all of 2022-10."""
    folder = root / "arxiv/pdf"
    folder.mkdir(parents=True)
    for month, texts in {"9107": (b"TeX",), "0506": (b"TeX", b"Matplotlib"),
                         "2210": (b"matplotlib",)}.items():  # fmt: skip
        with tarfile.open(folder / f"arXiv_pdf_{month}_001.tar", "w") as archive:
            for number, text in enumerate(texts):
                member = tarfile.TarInfo(f"{month}/{month}.{number:05d}.pdf")
                member.size = len(text)
                archive.addfile(member, BytesIO(text))


def write_arrays(root: Path, random: np.random.Generator) -> None:
    suite = root / "coiled-runtime-ci"
    path = suite / "synthetic-zarr/synth_random_int_array_2000_cubed.zarr"
    array = zarr.create_array(path, shape=(400,) * 3, chunks=(200,) * 3, dtype="int64")
    array[:] = random.integers(0, 256, array.shape)
    values = np.zeros((1240, 6, 21, 41), "float32")
    dataset = xr.Dataset({"zg": (("time", "plev", "lat", "lon"), values)})
    folder = suite / "CMIP6/CMIP/AS-RCEC/TaiESM1/1pctCO2/r1i1p1f1/Amon/zg/gn/v20200225"
    dataset.chunk(time=310).to_zarr(folder, consolidated=True)


def upload(root: Path, url: str) -> None:
    """Copy the folders to buckets of their names, which everybody may read."""
    import boto3

    keys = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY}
    client = boto3.client("s3", endpoint_url=url, region_name="us-east-1", **keys)
    for bucket in root.iterdir():
        client.create_bucket(Bucket=bucket.name, ACL="public-read")
        for path in bucket.rglob("*"):
            if path.is_file():
                name = path.relative_to(bucket).as_posix()
                client.upload_file(path, bucket.name, name, ExtraArgs={"ACL": "public-read"})
    client.close()


# -- modules --------------------------------------------------------------------------------------


def suite_folder(clone: Path, folder: Path) -> Path:
    """Copy the suite, and replace the two files."""
    shutil.copytree(clone / "tests", folder / "tests")
    for name in ("benchmark_schema.py", "setup.cfg", "cluster_kwargs.yaml"):
        shutil.copy(clone / name, folder)
    for name in ("conftest.py", "utils_test.py"):
        (folder / "tests" / name).write_text(_LINE)
    return folder


def make_tpch(folder: Path, root: Path) -> None:
    """Make the TPC-H data in the suite's folder, and for S3."""
    made = dataset("tpch", sf=0.01, parts=2).path
    shutil.copytree(made, folder / "tpch-data/scale-1")
    shutil.copytree(made, root / "coiled-runtime-ci/tpc-h/snappy/scale-1")


def run_module(name: str, folder: Path, url: str, limit_s: float) -> str:
    """Run the tests of a module; return how they ended."""
    module, log = MODULES[name], folder / f"{name.replace('/', '-')}.log"
    (folder / "environments").mkdir(exist_ok=True)
    text = _ENVIRONMENT.format(threads=module.threads, memory=module.memory)
    (folder / "environments" / "scaled.yaml").write_text(text)
    store = folder / "stores" / name
    words = ["--benchmark", "--benchkit-environment", "scaled", "--benchkit-store", str(store)]
    command = [sys.executable, "-m", "pytest", "--color=no", *words, *module.options]
    environ = {**os.environ, **variables(url), "BENCHKIT_DATA_URL": "s3://bench/data"}
    start = time.monotonic()
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, f"tests/{name}.py"], cwd=folder, env=environ, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # closes the clusters
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
    took = format_seconds(time.monotonic() - start)
    ended = Counter(_ENDED.findall(log.read_text()))
    collected = re.search(r"collected (\d{1,6}) items?", log.read_text())
    n_tests, n_ended = int(collected[1]) if collected else 0, sum(ended.values())
    parts = [f"{n} {_WORDS.get(word, word.lower())}" for word, n in ended.items()]
    if n_ended < n_tests:
        parts.append(f"{n_tests - n_ended} not reached")
    n_runs = len(Store(store)) if (store / "store.json").exists() else 0
    return f"{', '.join(parts) or 'no test'}; {counted(n_runs, 'run')}, {took}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clone", type=Path)
    parser.add_argument("modules", nargs="*", metavar="MODULE", default=list(MODULES))
    parser.add_argument("--minutes", type=float, default=60, help="limit of a module")
    parser.add_argument("--folder", type=Path, help="keep the suite, its data and logs there")
    parser.add_argument("--write-docs", action="store_true", help="write the rows into the page")
    given = parser.parse_args()
    page = next(table for table in docs_tables() if table.script.endswith(Path(__file__).name))
    lines = (line[2:-2].split(" | ") for line in page.text.splitlines()[2:])
    rows = {cells[0]: cells for cells in lines}
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line per request
    with tempfile.TemporaryDirectory() as temporary, emulator() as url:
        folder = given.folder or Path(temporary)
        root, random = folder / "buckets", np.random.default_rng(0)
        suite_folder(given.clone, folder)
        collect_workloads()  # declares the recipes
        write_taxis(root, random)
        write_tables(root, random)
        write_papers(root)
        write_arrays(root, random)
        make_tpch(folder, root)
        upload(root, url)
        for name in given.modules:
            result = run_module(name, folder, url, given.minutes * 60)
            print(name, result, flush=True)
            tried = f"{date.today():%-d %b %Y}"
            rows[f"`{name}`"] = [f"`{name}`", result, MODULES[name].needs, tried]
            show_table(
                __file__, "modules", TABLES["modules"], rows.values(), write=given.write_docs
            )


if __name__ == "__main__":
    main()
