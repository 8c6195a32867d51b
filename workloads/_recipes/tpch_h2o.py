"""Recipes of TPC-H, the group-by table of db-benchmark, and a wide time series."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchkit.measure.data.recipe import need, recipe, versions_of
from benchkit.measure.errors import DatasetError, MissingPackage

__all__ = ["h2o", "tpch", "wide"]

#: The seed of the published db-benchmark data.
H2O_SEED = 108
#: Rows per batch when rewriting, so that memory does not depend on the scale factor.
BATCH_ROWS = 500_000


@recipe(
    "tpch",
    version=1,
    sizes={
        "tiny": {"sf": 0.01, "parts": 2},
        "ci": {"sf": 0.1, "parts": 4},
        "laptop": {"sf": 1.0, "parts": 16},
        "cluster": {"sf": 100.0, "parts": 400},
    },
)
def tpch(folder: Path, *, sf: float = 0.1, parts: int = 4) -> Mapping[str, Any]:
    """Make the eight tables of TPC-H with tpchgen-cli, then relax their types.

    Decimals become floats, days become timestamps (pandas 3 cannot compare ``date32`` with a
    timestamp) and string views become strings (older readers do not support string views).

    Parameters
    ----------
    folder : Path
        Output folder.
    sf : float
        Scale factor; 1 is about 1 GB of text, 330 MiB of Parquet.
    parts : int
        Files of each large table.
    """
    need("pyarrow", "tpch")
    program = _program("tpchgen-cli", "tpch")
    raw = folder / "raw"
    command = [program, "parquet", "-s", str(sf), "--parts", str(parts), "-o", str(raw), "-q"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        message = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise DatasetError(f"tpchgen-cli failed with code {done.returncode}: {message}")
    rows: dict[str, int] = {}
    for path in sorted(raw.rglob("*.parquet")):
        table = path.parent.name
        (folder / table).mkdir(exist_ok=True)
        # tpchgen numbers parts from 1; leading zeros make the order of names that of numbers.
        number = int(path.stem.rpartition(".")[2])
        target = folder / table / f"{number - 1:05d}.parquet"
        rows[table] = rows.get(table, 0) + _relax(path, target)
        path.unlink()
    shutil.rmtree(raw)
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return {
        "rows": rows,
        "tables": {table: f"{table}/*.parquet" for table in rows},
        "seed": 0,  # TPC-H has a fixed seed
        "generators": {"tpchgen-cli": version.stdout.split()[-1], **versions_of("pyarrow")},
    }


@recipe(
    "h2o",
    version=1,
    sizes={
        "tiny": {"rows": 20_000, "groups": 20, "files": 2},
        "ci": {"rows": 1_000_000, "groups": 100, "files": 8},
        "laptop": {"rows": 10_000_000, "groups": 100, "files": 40},
        "cluster": {"rows": 1_000_000_000, "groups": 100, "files": 1000},
    },
)
def h2o(
    folder: Path, *, rows: int = 1_000_000, groups: int = 100, files: int = 8
) -> Mapping[str, Any]:
    """Make the group-by table of db-benchmark: six keys, three values, no nulls, unsorted.

    Parameters
    ----------
    folder : Path
        Output folder.
    rows : int
        Total number of rows (N).
    groups : int
        Values of the small keys (K); the large keys have N / K.
    files : int
        Files of about equal length.
    """
    need("pyarrow", "h2o")
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    many = max(1, rows // groups)
    small_names = pa.array([f"id{i:03d}" for i in range(1, groups + 1)])
    large_names = pa.array([f"id{i:010d}" for i in range(1, many + 1)])
    edges = np.linspace(0, rows, files + 1).astype(int)
    for number, count in enumerate(np.diff(edges)):
        rng = np.random.default_rng([H2O_SEED, number])

        def integers(top: int, rng: Any = rng, count: int = count) -> Any:
            return rng.integers(1, top + 1, count)

        columns = {
            "id1": small_names.take(pa.array(integers(groups) - 1)),
            "id2": small_names.take(pa.array(integers(groups) - 1)),
            "id3": large_names.take(pa.array(integers(many) - 1)),
            "id4": integers(groups),
            "id5": integers(groups),
            "id6": integers(many),
            "v1": integers(5),
            "v2": integers(15),
            "v3": (rng.random(count) * 100).round(6),
        }
        parquet.write_table(pa.table(columns), folder / f"{number:05d}.parquet")
    return {
        "rows": {"h2o": rows},
        "tables": {"h2o": "*.parquet"},
        "seed": H2O_SEED,
        "generators": versions_of("numpy", "pyarrow"),
    }


@recipe(
    "wide",
    version=1,
    sizes={
        "tiny": {"files": 2, "rows_per_file": 500},
        "ci": {"files": 16, "rows_per_file": 10_000},
        "laptop": {"files": 60, "rows_per_file": 20_000},
        "cluster": {"files": 700, "rows_per_file": 360_000},
    },
)
def wide(
    folder: Path, *, files: int = 16, rows_per_file: int = 10_000, seed: int = 0
) -> Mapping[str, Any]:
    """Make a time series of 100 columns: 25 each of strings, floats, integers and categories.

    The same columns as `benchkit.measure.random_frame` makes in memory, for workloads that read.

    Parameters
    ----------
    folder : Path
        Output folder.
    files, rows_per_file : int
        Files, and rows of each, 10 ms apart.
    seed : int
        Seed of the data.
    """
    need("pandas", "wide")
    need("pyarrow", "wide")
    from benchkit.measure.data.random import WIDE, frame_maker

    make = frame_maker(WIDE, rows_per_file, freq="10ms", seed=seed)
    for number in range(files):
        make(number).to_parquet(folder / f"{number:05d}.parquet", engine="pyarrow")
    return {
        "rows": {"wide": files * rows_per_file},
        "tables": {"wide": "*.parquet"},
        "seed": seed,
        "generators": versions_of("numpy", "pandas", "pyarrow"),
    }


def _relax(source: Path, target: Path) -> int:
    """Rewrite a Parquet file with types that every reader supports; return its number of rows."""
    import pyarrow as pa
    from pyarrow import parquet

    file = parquet.ParquetFile(source)
    schema = pa.schema([(part.name, _relaxed(part.type)) for part in file.schema_arrow])
    with parquet.ParquetWriter(target, schema) as writer:
        for batch in file.iter_batches(batch_size=BATCH_ROWS):
            columns = [
                column.cast(part.type) for column, part in zip(batch.columns, schema, strict=True)
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))
    return file.metadata.num_rows


def _relaxed(kind: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_decimal(kind):
        return pa.float64()
    if pa.types.is_date(kind):
        return pa.timestamp("ms")
    # Compare names: PyArrow before 16 has no `is_string_view`.
    return pa.string() if str(kind) in ("string_view", "large_string") else kind


def _program(program: str, name: str) -> str:
    """Return the path of a program next to this Python or on PATH."""
    scripts = str(Path(sys.executable).parent)
    path = shutil.which(program, path=scripts) or shutil.which(program)
    if path is None:
        raise MissingPackage(
            f"recipe {name} needs {program}, not installed here: pip install {program}"
        )
    return path
