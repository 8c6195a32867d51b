"""Solve and install a conda environment by py-rattler, in a process of its own.

A process, because the index of a large channel needs a gigabyte of memory, and because Ctrl-C can
end it. It reads a JSON file that `conda.create_conda` writes, and prints a problem in one line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

#: Channels that the name "defaults" stands for.
_DEFAULTS = ("https://repo.anaconda.com/pkgs/main", "https://repo.anaconda.com/pkgs/r")


def main(request: str) -> int:
    """Make an environment."""
    from rattler import exceptions

    try:
        asyncio.run(_make(**json.loads(Path(request).read_text(encoding="utf-8"))))
    except exceptions.SolverError as error:
        problem = f"No solution found: {_flat(error)}"
    except (exceptions.InvalidMatchSpecError, exceptions.InvalidChannelError) as error:
        problem = f"No solution found: not a conda package specification: {_flat(error)}"
    except (exceptions.GatewayError, exceptions.FetchRepoDataError) as error:
        problem = f"channel cannot be read: {_flat(error)}"
    except (exceptions.InstallerError, exceptions.LinkError, exceptions.IoError, OSError) as error:
        problem = _flat(error)
    else:
        return 0
    print(problem, file=sys.stderr)
    return 1


async def _make(*, channels: list[str], specs: list[str], prefix: str) -> None:
    import rattler

    names: list[str] = []
    for channel in channels:
        names += _DEFAULTS if channel == "defaults" else [channel]
    records = await rattler.solve(
        sources=[rattler.Channel(name) for name in names if name != "nodefaults"],
        specs=[rattler.MatchSpec(spec, strict=False) for spec in specs],
        virtual_packages=rattler.VirtualPackage.detect(),
    )
    await rattler.install(records, target_prefix=prefix, show_progress=False)


def _flat(error: Any) -> str:
    return " ".join(str(error).replace("\nCaused by: ", ": ").split())


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stderr.flush()
    # Threads of py-rattler 0.28 crash about 1 in 20 interpreters at exit, after the work is done.
    os._exit(code)
