"""Collect the provenance of a run: host, packages, configuration, commit; no secrets."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from functools import lru_cache
from importlib import metadata
from typing import Any

import dask

from benchkit.measure.secrets import redact

#: Lines of the metadata of a package; to parse all lines of 500 packages takes 0.15 s.
_HEAD = re.compile(r"^(Name|Version):(.*)$", re.M)


def collect_provenance(folder: str = ".") -> dict[str, Any]:
    """Return host, packages, configuration and commit for the head of a recording."""
    return {
        "packages": installed_packages(),
        "packages_hash": packages_hash(),
        "host": host_info(),
        "git_commit": git_commit(folder),
        "config": effective_config(),
        "argv": redact(sys.argv),
    }


@lru_cache(maxsize=1)
def installed_packages() -> dict[str, str]:
    """Return the versions of the installed packages."""
    # returned: Version by name, sorted.
    versions: dict[str, str] = {}
    for distribution in metadata.distributions():
        text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
        head = dict(reversed(_HEAD.findall(text.partition("\n\n")[0])))  # the first counts
        if name := head.get("Name", "").strip().lower().replace("_", "-"):
            versions.setdefault(name, head.get("Version", "").strip())
    return dict(sorted(versions.items()))


def packages_hash() -> str:
    """Return a hash of the versions of Python and all packages."""
    text = json.dumps([platform.python_version(), installed_packages()])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def host_name() -> str:
    """Return the name of this machine."""
    return os.environ.get("BENCHKIT_HOST") or platform.node()


def host_info() -> dict[str, Any]:
    """Describe the machine that runs the client."""
    info: dict[str, Any] = {
        "host": host_name(),
        "system": platform.platform(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "executable": os.path.basename(sys.executable),
        # Set by GitHub's runners: a new image has another kernel and other libraries.
        "image": " ".join(filter(None, map(os.environ.get, ("ImageOS", "ImageVersion")))),
    }
    try:
        import psutil

        info["memory"] = psutil.virtual_memory().total
        info["load"] = psutil.getloadavg()[0]
    except Exception as error:
        info["error"] = f"{type(error).__name__}: {error}"
    return info


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


@lru_cache(maxsize=8)
def git_commit(folder: str = ".") -> str:
    """Return the commit of a git checkout."""
    try:
        process = subprocess.run(
            ["git", "-C", folder, "describe", "--always", "--dirty", "--abbrev=40", "--match="],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return process.stdout.strip() if process.returncode == 0 else ""


def effective_config() -> dict[str, Any]:
    """Return Dask's current configuration."""
    config: dict[str, Any] = redact(dask.config.config)
    return config
