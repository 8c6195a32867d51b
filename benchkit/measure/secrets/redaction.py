"""Replace secrets in texts, JSON values and files."""

from __future__ import annotations

import base64
import html
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, unquote

from benchkit.measure.secrets.forms import find_secrets, is_secret_name

REDACTED = "(not recorded)"
#: What replaces a secret inside a text.
_STARS = "***"
#: Shorter values are not removed from texts: they could be parts of any word.
_SHORTEST = 6
#: Entries whose keys are names of packages or metrics, such as ``tokenizers``.
_NO_SECRETS = ("packages", "versions", "extra_metrics", "extra_units", "metric_versions")
#: Entries whose entry ``key`` is a secret: options of fsspec have the pair ``key`` and ``secret``.
_STORAGE = re.compile(r"storage|s3|gcs|fsspec|minio|client_kwargs")
#: A version of a package whose name sounds like a secret, such as ``secretstorage``.
_VERSION = re.compile(r"v?\d+(\.\d+)+((?:[.+-]|(?<=\d))[a-z]+\d*)*")
#: Values under names of secrets that are words of a setting.
_HARMLESS = frozenset(
    "anonymous basic default disabled enabled ignore jupyterhub kerberos optional required"
    " simple".split()
)
#: Values that were passed to `remember_secrets`.
_known: set[str] = set()


def redact(value: Any) -> Any:
    """Return a JSON value without secrets."""
    return _Redaction().value(value, "")


def redact_text(text: str) -> str:
    """Return a text without secrets.

    Examples
    --------
    >>> redact_text("cannot open https://bob:hunter2@db/x?token=abc")
    'cannot open https://***@db/x?token=***'
    """
    return _Redaction().text(text)


def has_secret(text: str) -> bool:
    """Return whether a text has a secret."""
    return redact_text(text) != text


def redact_file(path: Path) -> None:
    """Remove secrets from a text file, such as the log of a process that has ended."""
    with suppress(OSError):
        text = path.read_text(encoding="utf-8", errors="replace")
        clean = redact_text(text)
        if clean != text:
            path.write_text(clean, encoding="utf-8")


def remember_secrets(*values: Any) -> None:
    """Remove values under names of secrets, and logins in addresses, from all texts from now on."""
    for value in values:
        _known.update(_secrets_in(value))


class _Redaction:
    """One pass over a value: what is known now, and the texts that were seen."""

    def __init__(self) -> None:
        self.spellings = _spellings(frozenset(_known_values()))
        self.seen: dict[str, str] = {}

    def value(self, value: Any, key: str) -> Any:
        if isinstance(value, str):
            return REDACTED if _is_secret_entry(key, value) else self.text(value)
        if isinstance(value, Mapping):
            return {
                self.text(name) if isinstance(name, str) else name: self.value(
                    item, _key_of(str(name), key, value)
                )
                for name, item in value.items()
            }
        if isinstance(value, (bool, type(None), bytes, bytearray, memoryview)):
            return value
        if hasattr(value, "tolist"):  # a NumPy scalar or array
            return self.value(value.tolist(), key)
        if isinstance(value, (int, float)):
            return REDACTED if _is_secret_entry(key, value) else value
        if isinstance(value, (list, tuple, set, frozenset)):
            if value and _is_secret_entry(key, value):
                return REDACTED
            return self.items(list(value))
        return REDACTED if _is_secret_entry(key, value) else self.text(str(value))

    def items(self, items: list[Any]) -> list[Any]:
        """Return a list without secrets: a command line, headers as pairs, or anything else."""
        words = ["", *(item if isinstance(item, str) else "" for item in items)]
        is_pair = len(items) == 2 and _is_secret_header(words[1])
        return [
            REDACTED
            if item and (_is_secret_option(word) or (is_pair and word))
            else self.value(item, "")
            for word, item in zip(words, items)  # noqa: B905 (one word more)
        ]

    def text(self, text: str) -> str:
        clean = self.seen.get(text)
        if clean is None:
            clean = self.seen[text] = self._clean(text)
        return clean

    def _clean(self, text: str) -> str:
        for secret in self.spellings:
            if secret in text:
                text = text.replace(secret, _STARS)
        spans = sorted(find_secrets(text))
        if not spans:
            return text
        parts, end = [], 0
        for begin, stop in spans:
            if begin >= end:
                parts += [text[end:begin], _STARS]
            elif stop <= end:
                continue
            end = stop
        return "".join([*parts, text[end:]])


def _key_of(name: str, parent: str, siblings: Mapping[Any, Any]) -> str:
    """Return the name that decides on an entry: what ``credentials`` contains is secret, too."""
    if parent in _NO_SECRETS:
        return parent
    if name == "key" and ("secret" in siblings or _STORAGE.search(parent)):
        return "access_key"
    is_all_secret = is_secret_name(parent) and "auth" not in parent.lower()
    return parent if is_all_secret else name


def _is_secret_entry(key: str, value: Any) -> bool:
    is_empty = value in ("", [], 0)
    return bool(
        key
        and not is_empty
        and key not in _NO_SECRETS
        and is_secret_name(key)
        and not _VERSION.fullmatch(str(value))
    )


def _is_secret_option(word: str) -> bool:
    """Return whether a word of a command line is an option whose value is the next word."""
    return word.startswith("-") and "=" not in word and is_secret_name(word.lstrip("-"))


def _is_secret_header(word: str) -> bool:
    return word.lower() in ("authorization", "cookie", "set-cookie", "proxy-authorization") or (
        word.lower().startswith("x-") and is_secret_name(word)
    )


def _known_values() -> set[str]:
    """Return the known secrets."""
    values = {*_known, *_secrets_in(dict(os.environ))}
    if "dask.config" in sys.modules:  # its import takes 0.1 s
        values.update(_secrets_in(sys.modules["dask.config"].config))
    return values


@lru_cache(maxsize=16)
def _spellings(secrets: frozenset[str]) -> list[str]:
    """Return secrets as they may stand in texts, longest first."""
    found = {spelling for secret in secrets for spelling in _forms_in_texts(secret)}
    return sorted(found, key=len, reverse=True)


def _forms_in_texts(secret: str) -> Iterator[str]:
    secret = secret.strip()
    if len(secret) < _SHORTEST or secret.lower() in _HARMLESS:
        return
    yield secret
    escaped = json.dumps(secret)[1:-1]
    yield escaped
    yield json.dumps(escaped)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    for text in (repr(secret)[1:-1], secret.replace("'", "\\'"), secret.replace('"', '\\"')):
        yield text
        yield repr(text)[1:-1]
    yield html.escape(secret)
    for text in (quote(secret, safe=""), quote(secret), quote_plus(secret), unquote(secret)):
        if len(text) >= _SHORTEST:
            yield text
    data = secret.encode("utf-8", "surrogatepass")
    yield data.hex()
    for offset in range(3):  # in base64 a text has three spellings, by its place
        begin, end = -(-offset * 8 // 6), -(-(offset + len(data)) * 8 // 6)
        padded = base64.b64encode(b"\0" * offset + data).decode()
        inner = padded[begin : end if (offset + len(data)) % 3 == 0 else end - 1]
        if len(inner) > _SHORTEST:
            yield inner
            yield inner.replace("+", "-").replace("/", "_")


def _secrets_in(value: Any, key: str = "") -> Iterator[str]:
    """Yield the secrets of a configuration: under names of secrets, and inside of texts."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _secrets_in(item, _key_of(str(name), key, value))
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _secrets_in(item, key)
    elif isinstance(value, str):
        if _is_secret_entry(key, value):
            yield value
        yield from _secrets_of_text(value)
    elif isinstance(value, int) and not isinstance(value, bool) and _is_secret_entry(key, value):
        yield str(value)


@lru_cache(maxsize=4096)
def _secrets_of_text(text: str) -> tuple[str, ...]:
    """Return the secrets that a text of a configuration shows by its form; of a login, both."""
    found: set[str] = set()
    for begin, end in find_secrets(text):
        secret = text[begin:end]
        found.add(secret)
        if text[:begin].endswith("://"):
            found.update(_passwords(secret))
    return tuple(found)


def _passwords(login: str) -> Iterable[str]:
    _, colon, password = login.partition(":")
    return {password, unquote(password)} if colon else {unquote(login)}
