"""Write a file whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

__all__ = ["write_whole"]


def write_whole(path: Path, content: str | bytes) -> None:
    """Write or replace a file; after an error an earlier file is unchanged.

    Parameters
    ----------
    path : path
        The file; missing folders are made.
    content : str or bytes
        Text is written as UTF-8.

    Raises
    ------
    OSError
        The file cannot be written (disk full, no permission); the error names it.
    """
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file():  # /dev/stdout must not be replaced
        path.write_bytes(data)
        return
    final = Path(os.path.realpath(path))
    draft = final.with_name(f".{final.name}-{uuid4().hex[:8]}")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, final)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
