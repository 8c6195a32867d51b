"""Environments with an old release of Dask and distributed."""

import subprocess
import sys
from pathlib import Path

OLDEST = "2023.4.1"


def release_python(release: str, folder: Path, *packages: str) -> Path:
    """Return the interpreter of a new environment with a release and more packages."""
    # Python 3.10 if this machine has it, else the version of this interpreter.
    if _uv("venv", "-q", "--python", "3.10", "--offline", str(folder)).returncode:
        made = _uv("venv", "-q", "--python", sys.executable, str(folder))
        assert made.returncode == 0, made.stderr
    python = folder / "bin" / "python"
    wanted = [f"dask=={release}", f"distributed=={release}", "numpy<2", "gilknocker", *packages]
    built = _uv("pip", "install", "-q", "--python", str(python), *wanted)
    assert built.returncode == 0, built.stderr
    return python


def _uv(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "uv", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)
