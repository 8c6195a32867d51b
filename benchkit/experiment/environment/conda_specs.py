"""Translate conda package specifications to pip requirement lines.

`numpy =1.26` becomes `numpy==1.26.*`. A specification that pip cannot express is returned with a
reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import yaml
from packaging.specifiers import InvalidSpecifier, SpecifierSet

#: Names on the package index, and conda packages that are no Python packages.
_PACKAGES = yaml.safe_load(
    Path(__file__).with_name("conda_packages.yaml").read_text(encoding="utf-8")
)
#: Libraries and virtual packages, such as libnetcdf, _libgcc_mutex, xorg-libxau and abseil-cpp.
_LIBRARY = re.compile(r"_.+|lib.+|(xorg|aws-c|fonts?)-.+|.+-cpp|.+_linux-\d+")


@dataclass(frozen=True)
class CondaRequirement:
    """Translation of an entry of a conda file; all fields are empty for ``pip``."""

    requirement: str = ""  # Pip requirement line
    python: str = ""  # Version of Python
    reason: str = ""  # Reason why pip cannot express the entry, or a part of it


def translate_conda_spec(spec: str) -> CondaRequirement:
    """Translate an entry of `dependencies` in a conda file to a pip requirement.

    Examples
    --------
    >>> translate_conda_spec("numpy =1.26").requirement
    'numpy==1.26.*'
    >>> translate_conda_spec("openssl >1.1.0g").reason
    'not a Python package: pip cannot install it'
    """
    text = spec.rpartition("::")[2].strip()
    match = re.fullmatch(r"([\w.-]+)\s*(.*)", text)
    if not match:
        return CondaRequirement(reason="not a conda package specification")
    name, version = match[1].lower(), match[2].strip()
    is_library = _LIBRARY.fullmatch(name) and name not in _PACKAGES["library_names"]
    if is_library or name in _PACKAGES["not_python"]:
        return CondaRequirement(
            reason="not a Python package: pip cannot install it" if name != "pip" else ""
        )
    allowed, build = _split_version(version)
    if name == "python":
        return CondaRequirement(python=allowed.removeprefix("==").removesuffix(".*"))
    if allowed:
        try:
            SpecifierSet(allowed)
        except InvalidSpecifier:
            return CondaRequirement(reason=f"pip cannot express version {version!r}")
    name = _PACKAGES["pypi_names"].get(name, name)
    reason = f"build {build!r} has no equivalent: any build is used" if build else ""
    return CondaRequirement(f"{name}{allowed}", reason=reason)


def _split_version(text: str) -> tuple[str, str]:
    """Return pip's specifier and conda's build string."""
    if not text:
        return "", ""
    # name=1.2=py39_0, or separated by spaces: name 1.2 py39_0
    parts = re.fullmatch(r"=?\s*([\w.*]+)(?:\s*=\s*|\s+)([\w.*]+)", text)
    if parts and not text.startswith("=="):
        return f"=={parts[1]}", parts[2]
    if "|" in text:
        return text, ""
    compact = re.sub(r"\s+", "", text)
    if re.match(r"=[^=]", compact):
        version = compact[1:].removesuffix("*").removesuffix(".")
        return f"=={version}.*", ""
    if re.match(r"[\d*]", compact):
        return ("", "") if compact == "*" else (f"=={compact}", "")
    return compact, ""
