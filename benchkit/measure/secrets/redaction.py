"""Replace secrets in texts, JSON values and files."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchkit.measure.secrets.forms import FORMS, is_secret_name

__all__ = [
    "REDACTED",
    "redact",
    "redact_file",
    "redact_text",
    "remember_secrets",
]

REDACTED = "(not recorded)"
#: What replaces a secret inside a text.
_STARS = "***"
#: Shorter values are not removed from texts: they could be parts of any word.
_SHORTEST = 6
#: Entries whose keys are names of packages or metrics, such as ``tokenizers``.
_NO_SECRETS = ("packages", "versions", "extra_metrics", "extra_units", "metric_versions")
#: A version of a package whose name sounds like a secret, such as ``secretstorage``.
_VERSION = re.compile(r"v?\d+(\.\d+)+([.+-]?[a-z]+\d*)*")
#: Values under names of secrets that were passed to `remember_secrets`.
_known: set[str] = set()


def redact(value: Any) -> Any:
    """Return a JSON value without secrets.

    Parameters
    ----------
    value : Any
        JSON value, possibly nested; bytes are kept, other objects become text.

    Returns
    -------
    Any
        Copy with `REDACTED` as the value of each secret, and ``***`` for secrets inside texts.
    """
    return _redact(value, "", _known_values())


def redact_text(text: str) -> str:
    """Return a text without secrets.

    Parameters
    ----------
    text : str
        Text to show or to write.

    Returns
    -------
    str
        The text with ``***`` in place of secrets.

    Examples
    --------
    >>> redact_text("cannot open https://bob:hunter2@db/x?token=abc")
    'cannot open https://***@db/x?token=***'
    """
    return _redact_text(text, _known_values())


def redact_file(path: Path) -> None:
    """Remove secrets from a text file, such as the log of a process that has ended.

    Parameters
    ----------
    path : Path
        The file; a missing one is ignored.
    """
    with suppress(OSError):
        text = path.read_text(encoding="utf-8", errors="replace")
        clean = redact_text(text)
        if clean != text:
            path.write_text(clean, encoding="utf-8")


def remember_secrets(*values: Any) -> None:
    """Remove values under names of secrets from all texts from now on.

    Parameters
    ----------
    *values : mapping
        Options of a cluster, variables, configuration; possibly nested.
    """
    for value in values:
        _known.update(_secrets_in(value))


def _redact(value: Any, key: str, known: list[str]) -> Any:
    if isinstance(value, Mapping):
        return {
            _redact_text(str(name), known): _redact(item, _key_of(str(name), key), known)
            for name, item in value.items()
        }
    if hasattr(value, "tolist"):  # a NumPy scalar or array
        value = value.tolist()
    is_empty = value in (None, "", [], False, True)
    if is_secret_name(key) and not is_empty and not _VERSION.fullmatch(str(value)):
        return REDACTED
    if isinstance(value, (list, tuple, set, frozenset)):
        words = [""] + [item if isinstance(item, str) else "" for item in value]
        return [
            REDACTED if _is_secret_option(word) else _redact(item, "", known)
            for word, item in zip(words, value)  # noqa: B905 (one word more)
        ]
    if isinstance(value, str):
        return _redact_text(value, known)
    is_plain = isinstance(value, (int, float, bool, type(None), bytes, bytearray, memoryview))
    return value if is_plain else _redact_text(str(value), known)


def _key_of(name: str, parent: str) -> str:
    """Return the name that decides on an entry: what ``credentials`` contains is secret, too."""
    if parent in _NO_SECRETS:
        return parent
    is_all_secret = is_secret_name(parent) and "auth" not in parent.lower()
    return parent if is_all_secret else name


def _is_secret_option(word: str) -> bool:
    """Return whether a word of a command line is an option whose value is the next word."""
    return word.startswith("-") and "=" not in word and is_secret_name(word.lstrip("-"))


def _redact_text(text: str, known: list[str]) -> str:
    for secret in known:
        if secret in text:
            text = text.replace(secret, _STARS)
    for pattern, replacement in FORMS:
        text = pattern.sub(replacement, text)
    return text


def _known_values() -> list[str]:
    """Return the known secrets, longest first."""
    values = {value for name, value in os.environ.items() if is_secret_name(name)}
    values.update(_known)
    if "dask.config" in sys.modules:  # its import takes 0.1 s
        values.update(_secrets_in(sys.modules["dask.config"].config))
    for value in list(values):  # as they are written in JSON
        values.add(json.dumps(value)[1:-1])
    return sorted((v for v in values if _is_worth_removing(v)), key=len, reverse=True)


def _is_worth_removing(value: str) -> bool:
    # A path or a plain word, such as the module of an authentication, is not secret by itself.
    return len(value) >= _SHORTEST and value.lower() not in ("default", "basic", "kerberos")


def _secrets_in(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _secrets_in(item, _key_of(str(name), key))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _secrets_in(item, key)
    elif isinstance(value, (str, int)) and is_secret_name(key):
        yield str(value)
