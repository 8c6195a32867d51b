"""Collect workloads from folders of plain Python files, as pytest collects tests.

Only files that import benchkit and name ``workload`` or ``recipe``, themselves or through a helper
file next to them, are executed. A
file that fails to import is reported with path and line; the others are collected. Each file gets
a unique module name, so that two folders may have files of the same name. Its functions are pickled
by value, so that workers do not need the file.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

import cloudpickle

from benchkit.measure.arguments import check_text, list_of
from benchkit.measure.errors import InvalidSelectionError, UnknownWorkload, UsageError
from benchkit.measure.expression import matcher
from benchkit.measure.html_table import html_table
from benchkit.measure.suite.collect import absolute_folder, collect_tests, is_suite
from benchkit.measure.workloads import Variant, Workload

ENTRY_POINTS = "benchkit.workloads"
_IMPORT = re.compile(r"^[ \t]*(?:from|import)[ \t]+([^#\n]+)", re.MULTILINE)
_DECLARES = re.compile(r"\b(?:workload|recipe)\b")


@dataclass(frozen=True)
class BrokenFile:
    """A workload file that could not be imported."""

    path: str  # Path of the file, or `entry point <name>` of a plugin
    line: int  # Line that raised the error; 0 if unknown
    reason: str  # Class and message of the error

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


@dataclass
class Collection:
    """Collected workloads, and the files that could not be imported."""

    workloads: dict[str, Workload] = field(default_factory=dict)  # By name, in order of the files
    broken: list[BrokenFile] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)  # Those that were searched
    # Number of workloads from the user's folder; the shipped ones follow. None: only one kind.
    n_own: int | None = None
    # Names of shipped workloads that a file of the user replaces.
    replaced: list[str] = field(default_factory=list)

    def _repr_html_(self) -> str:
        rows: list[tuple[str, int | str, str]] = [
            (name, len(item.variants()), item.description.partition("\n")[0] or "-")
            for name, item in self.workloads.items()
        ]
        rows += [(f"{file.path}:{file.line}", "broken", file.reason) for file in self.broken]
        return html_table(f"{len(self.workloads)} workloads, {len(self.broken)} broken files", rows)

    def variants(self) -> list[Variant]:
        """Return all variants, in the order of their files."""
        return [variant for item in self.workloads.values() for variant in item.variants()]

    def _own_first(self) -> tuple[list[Variant], list[Variant]]:
        """Return the variants of the user, and all variants."""
        own = list(self.workloads.values())[: self.n_own]
        return [variant for item in own for variant in item.variants()], self.variants()

    def find(self, name: str) -> list[Variant]:
        """Return the variants of a workload name, a variant name, or a glob; one at least."""
        # The parameters in brackets may be in any order and incomplete. A glob selects shipped
        # workloads only if it matches none of the user's.
        check_text(name, "workload")
        base, _, inside = name.partition("[")
        if name in self.workloads:
            return self.workloads[name].variants()
        if base in self.workloads:
            variants = self.workloads[base].variants()
            exact = [variant for variant in variants if variant.name == name]
            matching = exact or [v for v in variants if v.has_values(inside.removesuffix("]"))]
            if matching:
                return matching
        if "*" in name:
            matches = matcher(name, glob=True)
            for variants in self._own_first():
                matching = [variant for variant in variants if matches(variant)]
                if matching:
                    return matching
        known = [variant.name for variant in self.variants()]
        raise UnknownWorkload(name, known if inside else [*self.workloads, *known])

    def require(self) -> None:
        """Raise an error that names the folders if there are no workloads at all."""
        if self.workloads and (self.n_own != 0 or not self.broken):
            return
        folders = ", ".join(map(str, self.folders)) or "no folder"
        reason = str(self.broken[0]) if self.broken else "no file there declares one with benchkit"
        if any(next(folder.rglob("test_*.py"), None) for folder in self.folders):
            reason += "; --pytest measures tests of pytest"
        raise InvalidSelectionError(f"no workloads in {folders}: {reason}")

    def select(self, names: Sequence[str] = (), expression: str | None = None) -> list[Variant]:
        """Return the variants of `names` that match the expression, each once."""
        # Without `names` the workloads of the user; shipped ones if none of these match.
        pools: Sequence[list[Variant]] = self._own_first()
        if names:
            pools = [[variant for name in names for variant in self.find(name)]]
        if expression is None:
            return list(dict.fromkeys(pools[0] or pools[-1]))
        matches = matcher(expression)
        if not self.workloads:
            self.require()
        for pool in pools:
            selected = [variant for variant in pool if matches(variant)]
            if selected:
                return list(dict.fromkeys(selected))
        raise InvalidSelectionError(
            f"-k {expression!r} selects none of {len(self.variants())} variants: "
            f"{self._tag_hint(expression) or 'see `benchkit list workloads`'}"
        )

    def _tag_hint(self, expression: str) -> str:
        """Return a hint if a word of the expression is a tag or a category."""
        for word in re.findall(r"[\w.-]+", expression):
            for kind, known in (
                ("tag", {tag for variant in self.variants() for tag in variant.tags}),
                ("category", {item.category for item in self.workloads.values()}),
            ):
                if word in known and f":{word}" not in expression:
                    return f"did you mean '{kind}:{word}'?"
        return ""


def collect(
    folders: str | Path | Sequence[str | Path] = (), *, shipped: str | Path | None = None
) -> Collection:
    """Import the workload files of folders and of installed plugins.

    Folders are searched recursively; ``pytest:PATH`` collects tests of pytest. Files and folders
    whose name begins with ``_`` or ``.`` are skipped; workload files may import them as helpers
    from their own folder. A workload in `folders` replaces one of the same name in `shipped`.
    """
    collection = Collection(folders=[Path(folder) for folder in list_of(folders, "workloads")])
    for folder in collection.folders:
        _add_folder(collection, folder)
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        try:
            _add_module(collection, point.load(), f"entry point {point.name}")
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            collection.broken.append(BrokenFile(f"entry point {point.name}", 0, reason))
    if shipped is not None:
        others = Collection()
        _add_folder(others, Path(shipped))
        collection.n_own = len(collection.workloads)
        collection.replaced = [name for name in others.workloads if name in collection.workloads]
        for name, item in others.workloads.items():
            collection.workloads.setdefault(name, item)
        collection.broken += others.broken
    return collection


def _add_folder(collection: Collection, root: Path) -> None:
    if is_suite(root):
        tests, broken = collect_tests(absolute_folder(root))
        collection.workloads.update({test.name: test for test in tests})
        collection.broken += [BrokenFile(node_id, 0, reason) for node_id, reason in broken]
        return
    if not root.is_dir():
        raise UsageError(f"{root}: no such folder of workloads")
    here, place = Path.cwd().resolve(), root.resolve()
    if place in here.parents or place == place.parent:
        raise UsageError(
            f"{root}: contains the working directory: give the folder of the workload files"
        )
    paths = []
    for folder, names, files in os.walk(root):
        # Installed packages are no workloads, although some of them import benchkit.
        names[:] = [
            name
            for name in names
            if not name.startswith(("_", "."))
            and name not in ("node_modules", "site-packages")
            and not Path(folder, name, "pyvenv.cfg").exists()
        ]
        paths += [
            Path(folder, name)
            for name in files
            if name.endswith(".py") and not name.startswith(("_", "."))
        ]
    for path in sorted(paths):
        if _may_declare(path):
            _add_file(collection, path)


def _may_declare(path: Path) -> bool:
    """Return whether a file, with its helpers, imports benchkit and names what declares."""
    text = "\n".join(_texts(path, set()))
    return "benchkit" in _imported(text) and _DECLARES.search(text) is not None


def _texts(path: Path, seen: set[Path]) -> Iterator[str]:
    """Yield the text of a file and of the helper files next to it that it imports."""
    if path in seen or not path.is_file():
        return
    seen.add(path)
    text = path.read_text(encoding="utf-8", errors="replace")
    yield text
    for name in sorted(_imported(text)):
        if name.startswith("_"):
            yield from _texts(path.with_name(f"{name}.py"), seen)


def _imported(text: str) -> set[str]:
    return {name for line in _IMPORT.findall(text) for name in re.findall(r"\w+", line)}


def _add_file(collection: Collection, path: Path) -> None:
    try:
        module = _import_file(path.resolve())
        _add_module(collection, module, str(path))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        collection.broken.append(_broken_file(path, error))


def _import_file(path: Path) -> ModuleType:
    folder_hash = hashlib.sha256(str(path.parent).encode()).hexdigest()[:8]
    name = f"benchkit_workloads_{folder_hash}.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    before = set(sys.modules)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    finally:
        sys.path.remove(str(path.parent))
    cloudpickle.register_pickle_by_value(module)
    for other in set(sys.modules) - before:
        file = str(getattr(sys.modules[other], "__file__", None) or "")
        if other.startswith("_") and file.startswith(str(path.parent)):
            _rename(other, f"{name.partition('.')[0]}.{other}")
    return module


def _rename(name: str, new: str) -> None:
    """Rename a helper module next to a workload file to a name that cannot be imported.

    Otherwise pickle would store its functions by reference, which workers cannot import.
    """
    helper = sys.modules[new] = sys.modules.pop(name)
    helper.__name__ = new
    for value in vars(helper).values():
        if getattr(value, "__module__", None) == name:
            line = getattr(value, "__firstlineno__", None)
            value.__module__ = new
            if line is not None:  # Python 3.13 has removed it: without it a class has no source
                value.__firstlineno__ = line
    cloudpickle.register_pickle_by_value(helper)


def _add_module(collection: Collection, module: ModuleType, origin: str) -> None:
    for value in list(vars(module).values()):
        if not isinstance(value, Workload) or value.main.__module__ != module.__name__:
            continue
        other = collection.workloads.get(value.name)
        if other is value:
            continue
        if other is not None:
            place = f"{other.path}:{other.line}"
            reason = f"{value.name} is already declared in {place}: rename one of the two"
            collection.broken.append(BrokenFile(origin, value.line, reason))
            continue
        collection.workloads[value.name] = value


def _broken_file(path: Path, error: BaseException) -> BrokenFile:
    """Describe an import error, with the line of the file also if a library raised the error."""
    if isinstance(error, SyntaxError) and error.lineno:
        return BrokenFile(str(path), error.lineno, f"{type(error).__name__}: {error.msg}")
    line = 1
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == str(path.resolve()):
            line = frame.lineno or line
    text = (str(error).strip().splitlines() or [""])[0]
    return BrokenFile(str(path), line, f"{type(error).__name__}: {text}".rstrip(": "))
