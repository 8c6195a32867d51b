"""Report the packages, Dask settings and import errors of the environment that runs this file.

The Python of the environment runs this file as a script, so it imports the standard library, Dask
and distributed only.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import platform
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

#: Module to import -> packages that it needs; without them it is not checked.
CHECKED_MODULES = {
    "distributed": (),
    "ipykernel": (),
    "dask.array": ("numpy",),
    "dask.dataframe": ("pandas", "pyarrow"),
}


def inspect_environment() -> dict[str, Any]:
    """Return packages, Dask settings, and modules that cannot be imported."""
    broken = {}
    for module, needs in CHECKED_MODULES.items():
        if all(importlib.util.find_spec(name) for name in needs):
            try:
                importlib.import_module(module)
            except Exception as error:
                line = (str(error).strip() or type(error).__name__).splitlines()[0]
                broken[module] = f"{type(error).__name__}: {line}"
    report: dict[str, Any] = {
        "python": platform.python_version(),
        "packages": _packages(),
        "broken": broken,
        "defaults": {},
        "known": [],
        "open": [],
    }
    if "distributed" not in broken:
        report.update(settings())
    return report


def _packages() -> dict[str, str]:
    packages: dict[str, str] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            packages.setdefault(name.lower().replace("_", "-"), distribution.version)
    return dict(sorted(packages.items()))


def settings() -> dict[str, Any]:
    """Return the settings of the Dask configuration."""
    import dask
    import distributed
    import yaml

    known: set[str] = set(getattr(dask.config, "deprecations", {}))
    open_: set[str] = set()
    for module in (dask, distributed):
        folder = Path(module.__file__ or "").parent
        schema = folder / f"{module.__name__}-schema.yaml"
        if schema.exists():
            _read_schema(yaml.safe_load(schema.read_text(encoding="utf-8")), (), known, open_)
        # Settings that are read in the source and have no default.
        for file in folder.rglob("*.py"):
            if "tests" not in file.parts:
                text = file.read_text(encoding="utf-8", errors="replace")
                text = re.sub(r"^[ \t]*(?:>>>|#).*$", "", text, flags=re.MULTILINE)  # examples
                known.update(re.findall(r"config\.get\(\s*f?[\"']([\w.-]+)[\"']", text))
    defaults: dict[str, Any] = {}
    for layer in dask.config.defaults:
        dask.config.update(defaults, layer, priority="new")
    _read_defaults(defaults, (), known)
    return {"defaults": _plain(defaults), "known": sorted(known), "open": sorted(open_)}


def _read_schema(schema: Any, keys: tuple[str, ...], known: set[str], open_: set[str]) -> None:
    properties = (schema or {}).get("properties") or {}
    if keys and not properties and "object" in _types(schema or {}):
        open_.add(".".join(keys))
    for key, inner in properties.items():
        known.add(".".join((*keys, key)))
        _read_schema(inner, (*keys, key), known, open_)


def _types(schema: dict[str, Any]) -> list[str]:
    kind = schema.get("type", [])
    nested = [t for option in schema.get("oneOf", []) for t in _types(option)]
    return [*([kind] if isinstance(kind, str) else kind), *nested]


def _read_defaults(values: dict[str, Any], keys: tuple[str, ...], known: set[str]) -> None:
    for key, value in values.items():
        known.add(".".join((*keys, str(key))))
        if isinstance(value, dict):
            _read_defaults(value, (*keys, str(key)), known)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


if __name__ == "__main__":
    # Output of imports must not be mixed with the result.
    stdout, sys.stdout = sys.stdout, sys.stderr
    print(json.dumps(inspect_environment()), file=stdout)
