"""Run a program to its end and capture what it prints."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

__all__ = ["run_captured"]


def run_captured(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program; an exit code other than 0 is no error.

    Parameters
    ----------
    command : sequence of str
        Program and arguments.
    **options
        Further arguments of `subprocess.run`, such as ``timeout`` in s.

    Returns
    -------
    subprocess.CompletedProcess
        Exit code and output, as text.

    Raises
    ------
    OSError
        The program cannot be started.
    subprocess.TimeoutExpired
        It did not end in time.
    """
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)
