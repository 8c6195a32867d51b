"""Parameterised notebooks: read the declared parameters, check values, store the result status.

Papermill sets parameters that a notebook does not have, loses types silently, and parses some
declarations incorrectly. So this module reads the parameters cell itself and checks values before
the notebook runs.
"""

from __future__ import annotations

import ast
import io
import json
import tokenize
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from benchkit.errors import InvalidNotebookError, did_you_mean
from benchkit.measure.secrets import redact
from benchkit.whole_file import write_whole


@dataclass(frozen=True)
class Parameter:
    """One parameter of a notebook."""

    name: str  # Name of the variable
    type: str  # Annotation as written, or the type of the default
    default: Any  # Value of the literal
    comment: str  # Comment at the end of its line, or ""


def declared_parameters(notebook: str | Path) -> dict[str, Parameter]:
    """Return the parameters of a notebook, in the order of its parameters cell."""
    try:
        content = nbformat.read(str(notebook), as_version=4)
    except (OSError, ValueError, nbformat.reader.NotJSONError) as error:
        raise InvalidNotebookError(f"{notebook}: cannot be read as a notebook: {error}") from error
    for cell in content.cells:
        if cell.cell_type == "code" and "parameters" in cell.metadata.get("tags", []):
            return _parse(cell.source, notebook)
    return {}


def _parse(source: str, notebook: str | Path) -> dict[str, Parameter]:
    comments = {
        token.start[0]: token.string.lstrip("# ").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    parameters = {}
    for node in ast.parse(source).body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                kind = ast.unparse(node.annotation)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                kind = ""
            case _:
                raise InvalidNotebookError(
                    f"{notebook}: line {node.lineno} of its parameters cell is not "
                    "`name: type = literal`"
                )
        try:
            default = ast.literal_eval(value)
        except ValueError as error:
            raise InvalidNotebookError(
                f"{notebook}: the default of parameter {name!r} is not a literal"
            ) from error
        comment = comments.get(node.end_lineno or node.lineno, "")
        parameters[name] = Parameter(name, kind or type(default).__name__, default, comment)
    return parameters


def checked_parameters(notebook: str | Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values, after checking that the notebook receives them unchanged."""
    declared = declared_parameters(notebook)
    for name, value in values.items():
        if name not in declared:
            hint = did_you_mean(name, declared, f"it has {', '.join(declared) or 'none'}")
            raise InvalidNotebookError(f"{notebook}: no parameter named {name!r}: {hint}")
        _require_json(notebook, name, value)
        _require_type(notebook, declared[name], value)
    return dict(values)


def _require_json(notebook: str | Path, name: str, value: Any) -> None:
    # Reject values that the transfer changes: tuples become lists, integer keys and np.int64 text.
    # NaN is not valid JSON, but papermill passes it unchanged.
    text = repr(value)
    with suppress(TypeError, ValueError):
        if repr(json.loads(json.dumps(value))) == text:
            return
    raise InvalidNotebookError(
        f"{notebook}: parameter {name!r} is {text[:60]}, a {type(value).__name__}: only strings, "
        "numbers, booleans, None, lists and dictionaries reach a notebook unchanged"
    )


_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "list": (list,),
    "dict": (dict,),
    "None": (type(None),),
}


def _require_type(notebook: str | Path, parameter: Parameter, value: Any) -> None:
    names = [part.strip().partition("[")[0] for part in parameter.type.split("|")]
    if not all(name in _TYPES for name in names):
        return
    allowed = tuple(kind for name in names for kind in _TYPES[name])
    if isinstance(value, allowed) and (not isinstance(value, bool) or bool in allowed):
        return
    raise InvalidNotebookError(
        f"{notebook}: parameter {parameter.name!r} is {value!r}: it must be {parameter.type}"
    )


def publish_executed(draft: Path, output: Path, **metadata: Any) -> None:
    """Write an executed notebook with metadata under ``benchkit``, without secrets.

    Papermill marks the cells of a dead kernel `completed`, and keeps the kernel name of the input
    notebook, so the real status and environment are stored here.
    """
    with suppress(OSError, ValueError):
        notebook = nbformat.read(str(draft), as_version=4)
        notebook.metadata["benchkit"] = {**notebook.metadata.get("benchkit", {}), **metadata}
        # Options of the cluster stand in a cell, and messages of errors in the outputs.
        write_whole(output, nbformat.writes(nbformat.from_dict(redact(notebook))) + "\n")
