"""Collect workloads from folders of plain Python files, as pytest collects tests.

A file that fails to import is reported by name and line and stops nobody. Each file gets a module
name of its own, so that two folders may have files of the same name, and its functions are pickled
by value, so that workers need not have the file.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

import cloudpickle

from benchkit.measure.errors import InvalidSelectionError, UnknownWorkload, UsageError
from benchkit.measure.expression import matcher
from benchkit.measure.workloads import Variant, Workload

__all__ = ["Broken", "Collection", "collect"]

ENTRY_POINTS = "benchkit.workloads"


@dataclass(frozen=True)
class Broken:
    """A file that could not be collected: where, and why in one line."""

    path: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


@dataclass
class Collection:
    """The workloads that were found, by name, and the files that are broken."""

    workloads: dict[str, Workload] = field(default_factory=dict)
    broken: list[Broken] = field(default_factory=list)

    def variants(self) -> list[Variant]:
        """Return all variants in the order of their files."""
        return [variant for found in self.workloads.values() for variant in found.variants()]

    def find(self, name: str) -> list[Variant]:
        """Return the variants of a name: a workload, one variant, or a glob.

        Parameters in brackets may be given in any order, and in part.

        Raises
        ------
        UnknownWorkload
            There is none; the message names near ones.
        """
        base, _, inside = name.partition("[")
        if "*" in name:
            matches = matcher(f"name:{name}")
            found = [variant for variant in self.variants() if matches(variant)]
        else:
            wanted = {part.strip() for part in inside.rstrip("]").split(",") if part.strip()}
            found = [
                variant
                for variant in (self.workloads[base].variants() if base in self.workloads else [])
                if wanted <= {f"{key}={value}" for key, value in variant.params.items()}
            ]
        if not found:
            known = [variant.name for variant in self.variants()]
            raise UnknownWorkload(name, known if inside else [*self.workloads, *known])
        return found

    def select(self, names: Sequence[str] = (), expression: str | None = None) -> list[Variant]:
        """Return the variants that are named and match the expression, each once.

        Raises
        ------
        UnknownWorkload, InvalidSelectionError
            A name does not exist; the expression cannot be read, or selects nothing.
        """
        chosen = [variant for name in names for variant in self.find(name)]
        chosen = chosen if names else self.variants()
        if expression is not None:
            matches = matcher(expression)
            chosen = [variant for variant in chosen if matches(variant)]
            if not chosen:
                raise InvalidSelectionError(
                    f"-k {expression!r} selects none of {len(self.variants())} variants: "
                    "see `benchkit list workloads`"
                )
        return list(dict.fromkeys(chosen))


def collect(folders: str | Path | Sequence[str | Path] = ()) -> Collection:
    """Import the workload files of these folders, and those of installed plugins.

    Parameters
    ----------
    folders : path or sequence of path
        Each is walked; files and folders beginning with ``_`` or ``.`` are left alone, but a
        workload file may import such helpers from its own folder.

    Returns
    -------
    Collection
        What was found; broken files are listed in it.

    Raises
    ------
    UsageError
        A folder does not exist.
    """
    collection = Collection()
    for folder in [folders] if isinstance(folders, (str, Path)) else folders:
        root = Path(folder)
        if not root.is_dir():
            raise UsageError(f"{folder}: no such folder of workloads")
        for path in sorted(root.rglob("*.py")):
            inside = path.relative_to(root).parts
            if not any(part.startswith(("_", ".")) for part in inside):
                _add_file(collection, path)
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        try:
            _add_module(collection, point.load(), f"entry point {point.name}")
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            collection.broken.append(Broken(f"entry point {point.name}", 0, reason))
    return collection


def _add_file(collection: Collection, path: Path) -> None:
    try:
        module = _import_file(path.resolve())
        _add_module(collection, module, str(path))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        collection.broken.append(_broken(path, error))


def _import_file(path: Path) -> ModuleType:
    folder_hash = hashlib.sha256(str(path.parent).encode()).hexdigest()[:8]
    name = f"benchkit_workloads_{folder_hash}.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    before = set(sys.modules)
    with _importable(path.parent):
        try:
            spec.loader.exec_module(module)
        except BaseException:
            sys.modules.pop(name, None)
            raise
    cloudpickle.register_pickle_by_value(module)
    for other in set(sys.modules) - before:
        file = str(getattr(sys.modules[other], "__file__", None) or "")
        if other.startswith("_") and file.startswith(str(path.parent)):
            _rename(other, f"{name.partition('.')[0]}.{other}")
    return module


def _rename(name: str, new: str) -> None:
    """Give a helper beside a workload a name that nobody can import, as the workload has one.

    Workers cannot import it; and what pickle could find by its name here would not go along.
    """
    helper = sys.modules[new] = sys.modules.pop(name)
    helper.__name__ = new
    for value in vars(helper).values():
        if getattr(value, "__module__", None) == name:
            value.__module__ = new
    cloudpickle.register_pickle_by_value(helper)


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _add_module(collection: Collection, module: ModuleType, origin: str) -> None:
    for value in list(vars(module).values()):
        if not isinstance(value, Workload) or value.main.__module__ != module.__name__:
            continue
        other = collection.workloads.get(value.name)
        if other is value:
            continue
        if other is not None:
            place = f"{other.path}:{other.line}"
            reason = f"{value.name} is declared in {place} already: give one another name"
            collection.broken.append(Broken(origin, value.line, reason))
            continue
        collection.workloads[value.name] = value


def _broken(path: Path, error: BaseException) -> Broken:
    """Say where in the file itself it went wrong, also when it was a library that raised."""
    if isinstance(error, SyntaxError) and error.lineno:
        return Broken(str(path), error.lineno, f"{type(error).__name__}: {error.msg}")
    line = 1
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == str(path.resolve()):
            line = frame.lineno or line
    text = (str(error).strip().splitlines() or [""])[0]
    return Broken(str(path), line, f"{type(error).__name__}: {text}".rstrip(": "))
