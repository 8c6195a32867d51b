"""Objects of many kinds with a given size, and their comparison."""

from __future__ import annotations

KINDS = (
    "array",
    "strided",
    "object_array",
    "frame",
    "strings",
    "categories",
    "arrow",
    "nested",
    "graph",
)


def sample_object(kind, nbytes, seed):
    """Return a seeded object of one of `KINDS` with about `nbytes`."""
    import numpy as np

    makers = {
        "array": _array,
        "strided": _strided,
        "object_array": _object_array,
        "frame": _frame,
        "strings": _strings,
        "categories": _categories,
        "arrow": _arrow,
        "nested": _nested,
        "graph": _graph,
    }
    return makers[kind](nbytes, np.random.default_rng(seed))


def differs(one, other):
    """Return whether two objects of `an_object` differ in type, values or order."""
    import numpy as np
    import pandas as pd

    if type(one) is not type(other):
        return True
    if isinstance(one, np.ndarray):
        return one.dtype != other.dtype or not np.array_equal(one, other)
    if isinstance(one, pd.DataFrame):
        return list(one.dtypes) != list(other.dtypes) or not one.equals(other)
    if hasattr(one, "equals"):
        return not one.equals(other)
    return one != other


def _array(nbytes, rng):
    return rng.random(max(1, nbytes // 8))


def _strided(nbytes, rng):
    side = max(2, int((nbytes // 8) ** 0.5))
    return rng.random((side, 2 * side))[:, ::2]


def _object_array(nbytes, rng):
    import numpy as np

    return np.array(_words(nbytes // 64 + 1, rng), dtype=object)


def _frame(nbytes, rng):
    import pandas as pd

    rows = max(1, nbytes // 32)
    columns = {f"float_{i}": rng.random(rows) for i in range(3)}
    return pd.DataFrame({**columns, "int": rng.integers(0, 1000, rows)})


def _strings(nbytes, rng):
    import pandas as pd

    words = _words(nbytes // 20 + 1, rng)
    return pd.DataFrame({"word": pd.Series(words, dtype="string[pyarrow]")})


def _categories(nbytes, rng):
    import numpy as np
    import pandas as pd

    names = _words(100, rng)
    codes = rng.integers(0, len(names), (2, max(1, nbytes // 2)), dtype=np.int8)
    columns = [pd.Categorical.from_codes(row, categories=names) for row in codes]
    return pd.DataFrame(dict(zip("ab", columns, strict=True)))


def _arrow(nbytes, rng):
    import pyarrow as pa

    rows = max(1, nbytes // 36)
    return pa.table(
        {"x": rng.random(rows), "n": rng.integers(0, 1000, rows), "word": _words(rows, rng)}
    )


def _nested(nbytes, rng):
    """Return records in dictionaries in lists, like metadata."""
    words = _words(max(2, nbytes // 120), rng)
    return {
        "version": 1,
        "records": [
            {"name": word, "place": [i, -i], "inner": {"share": i / 7, "tag": None}}
            for i, word in enumerate(words)
        ],
    }


def _graph(nbytes, rng):
    """Return a graph of tasks with 640 B per task: 64 MB are 100 000 tasks."""
    count = max(2, nbytes // 640)
    links = rng.integers(0, 2**31, count).tolist()
    return {
        ("add-numbers", i): (sum, [("add-numbers", links[i] % i), i]) if i else (int, "1")
        for i in range(count)
    }


def _words(count, rng):
    return [f"word-{number:011d}" for number in rng.integers(0, 10**11, count).tolist()]
