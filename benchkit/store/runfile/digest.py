"""Verify the bytes of a run file before HDF5 reads them.

HDF5 checks no values: a flipped bit becomes another number, and a zeroed sector can make its C code
loop for ever. Each run file ends with the SHA-256 digest of the bytes before it, which readers of
HDF5 ignore. Files without it are tried in another process.
"""

from __future__ import annotations

import os
import re
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from benchkit.errors import UnreadableRun
from benchkit.store.runfile.trial import TrialError, try_to_read

__all__ = ["Verified", "digest_of", "is_whole", "verify", "with_trailer"]

_TRAILER = b"\nbenchkit sha256 %s\n"
_TRAILER_BYTES = len(_TRAILER) - 2 + 64
_PATTERN = re.compile(rb"\nbenchkit sha256 ([0-9a-f]{64})\n")
#: Number of results that are kept; a page of the dashboard opens a few runs.
_MOST_KEPT = 10_000


class Verified(NamedTuple):
    """What is known about the bytes of a run file."""

    digest: str  # SHA-256 of the whole file, in hexadecimal digits, as `sha256sum` prints it
    has_trailer: bool  # Whether the file contains the digest of its content


#: Path -> identity of the file, and result or reason why it is damaged. Files of a store never
#: change, so each is verified once in a process.
_kept: dict[str, tuple[tuple[int, ...], Verified | str]] = {}


def with_trailer(content: bytes) -> bytes:
    """Return the content of a run file with its digest at the end."""
    return content + _TRAILER % sha256(content).hexdigest().encode()


def digest_of(data: bytes) -> str:
    """Return the SHA-256 digest of a whole file, as ``sha256sum`` prints it."""
    return sha256(data).hexdigest()


def is_whole(data: bytes) -> bool:
    """Return whether the bytes of a run file match the digest at its end."""
    trailer = _PATTERN.fullmatch(data[-_TRAILER_BYTES:])
    return trailer is None or _matches(data, trailer)


def _matches(data: bytes, trailer: re.Match[bytes]) -> bool:
    return sha256(data[:-_TRAILER_BYTES]).hexdigest().encode() == trailer[1]


def verify(path: Path) -> Verified:
    """Raise an error if a run file is damaged; cached until the file changes."""
    name, status = str(path), os.stat(path)
    identity = (status.st_size, status.st_mtime_ns, status.st_ino)
    kept = _kept.get(name)
    if kept is None or kept[0] != identity:
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        kept = _kept[name] = (identity, _examine(path))
    if isinstance(kept[1], str):
        raise UnreadableRun(f"{path}: damaged run file: {kept[1]}")
    return kept[1]


def _examine(path: Path) -> Verified | str:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:  # not kept: the user can permit it
        raise UnreadableRun(f"{path}: cannot be read: {error.strerror or error}") from error
    trailer = _PATTERN.fullmatch(data[-_TRAILER_BYTES:])
    if trailer is None:
        try:
            try_to_read(path, len(data))
        except TrialError as error:
            return str(error)
    elif not _matches(data, trailer):
        return "its bytes differ from its SHA-256 digest"
    return Verified(digest_of(data), trailer is not None)
