"""Convert values to text, JSON types and flat mappings that all file formats can hold."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any


def split_at_commas(text: str) -> list[str]:
    """Split a text at the commas that are not in brackets.

    Examples
    --------
    >>> split_at_commas("(1, 2), [3, 4],5")
    ['(1, 2)', '[3, 4]', '5']
    """
    parts: list[list[str]] = []
    n_open = [0, 0, 0]
    for piece in text.split(","):
        if max(n_open) <= 0:
            parts.append([])
            n_open = [0, 0, 0]
        parts[-1].append(piece)
        n_open = [
            n + piece.count(a) - piece.count(b)
            for n, (a, b) in zip(n_open, (("(", ")"), ("[", "]"), ("{", "}")), strict=True)
        ]
    return [",".join(part).strip() for part in parts]


def clean_text(value: Any) -> str:
    r"""Return text with NUL and half surrogate pairs replaced by their escape sequences.

    Task keys and error messages can contain any character. pandas 3 and Arrow raise on half a
    surrogate pair, and HDF5 ends a text at NUL.

    Examples
    --------
    >>> clean_text("a\0b")
    'a\\x00b'
    """
    text = "" if value is None else str(value)
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


def json_safe(value: Any) -> Any:
    """Return a value as JSON types: NaN, infinity and pandas.NA become None.

    Examples
    --------
    >>> json_safe({"ratio": float("nan"), "runs": (1, 2)})
    {'ratio': None, 'runs': [1, 2]}
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Mapping):
        return {str(name): json_safe(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(item) for item in value]
    if type(value).__name__ == "NAType":  # pandas.NA, without an import of pandas
        return None
    if hasattr(value, "item") and not hasattr(value, "__len__"):  # a NumPy scalar
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def flatten(values: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings with their dotted names.

    Examples
    --------
    >>> dict(flatten({"a": {"b": 1, "c": {}}, "d": 2}))
    {'a.b': 1, 'a.c': {}, 'd': 2}
    """
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def decode_json(text: Any) -> dict[str, Any]:
    """Return the JSON object in a text."""
    try:
        value = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
