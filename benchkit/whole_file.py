"""Write a file whole or not at all, and check before that it can be written."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from benchkit.errors import UsageError

__all__ = ["check_folder", "write_whole"]


def write_whole(path: Path, content: str | bytes) -> None:
    """Write or replace a file; after an error an earlier file is unchanged."""
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


def check_folder(option: str, folder: str) -> None:
    """Check that results can be written, before a measurement that may take hours."""
    made = [path for path in (Path(folder), *Path(folder).parents) if not path.exists()]
    try:
        os.makedirs(folder, exist_ok=True)
        descriptor, draft = tempfile.mkstemp(dir=folder)
        os.close(descriptor)
        os.unlink(draft)
        with suppress(OSError):  # something else was put there
            for path in made:
                path.rmdir()
    except OSError as error:
        raise UsageError(f"{option} {folder}: cannot be written: {error.strerror}") from error
