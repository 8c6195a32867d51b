"""From conda's way to name packages to pip's: `numpy =1.26` is `numpy==1.26.*`.

Knows names and versions as text. What pip has no word for is returned as a reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from packaging.specifiers import InvalidSpecifier, SpecifierSet

__all__ = ["Translated", "translate"]

#: Packages that go by another name on the package index.
_NAMES = {
    "dask-core": "dask",
    "msgpack-python": "msgpack",
    "python-graphviz": "graphviz",
    "pytorch": "torch",
    "pyarrow-core": "pyarrow",
    "matplotlib-base": "matplotlib",
    "xarray-base": "xarray",
    "seaborn-base": "seaborn",
    "python-snappy": "python-snappy",
    "brotli-python": "brotli",
    "snowflake-connector-python": "snowflake-connector-python",
}
#: What `dask` of conda-forge brings and the index has as an extra.
_EXTRAS = {"dask": "dask[array,dataframe,diagnostics]"}
#: Programs and libraries that are no Python packages.
_NOT_PYTHON = {
    "arrow-cpp", "blas", "c-compiler", "compilers", "conda", "cuda-toolkit", "cudatoolkit",
    "cxx-compiler", "gcc", "git", "graphviz", "gxx", "jemalloc", "libblas", "libgcc", "make",
    "mamba", "micromamba", "mkl", "nodejs", "openblas", "openjdk", "openssl", "pip",
    "pytorch-cuda", "s3cmd", "sysroot_linux-64",
}  # fmt: skip


@dataclass(frozen=True)
class Translated:
    """A pip requirement line, or the version of Python, or why there is neither."""

    requirement: str = ""
    python: str = ""
    reason: str = ""


def translate(spec: str) -> Translated:
    """Return what one line of a conda file's `dependencies` means for pip.

    Parameters
    ----------
    spec : str
        Such as ``conda-forge::numpy =1.26`` or ``pandas >=2,<3``.

    Examples
    --------
    >>> translate("numpy =1.26").requirement
    'numpy==1.26.*'
    >>> translate("openssl >1.1.0g").reason
    'no Python package: pip cannot install it'
    """
    text = spec.rpartition("::")[2].strip()
    match = re.fullmatch(r"([\w.-]+)\s*(.*)", text)
    if not match:
        return Translated(reason="not understood")
    name, version = match[1].lower(), match[2].strip()
    if name in _NOT_PYTHON:
        return Translated(
            reason="no Python package: pip cannot install it" if name != "pip" else ""
        )
    allowed, build = _version(version)
    if name == "python":
        wanted = allowed.removeprefix("==").removesuffix(".*")
        return Translated(python=wanted)
    if allowed:
        try:
            SpecifierSet(allowed)
        except InvalidSpecifier:
            return Translated(reason=f"pip has no word for version {version!r}")
    name = _NAMES.get(name, _EXTRAS.get(name, name))
    reason = f"build {build!r} has no equivalent: any build is taken" if build else ""
    return Translated(f"{name}{allowed}", reason=reason)


def _version(text: str) -> tuple[str, str]:
    """Return pip's specifier and conda's build string."""
    if not text:
        return "", ""
    # name=1.2=py39_0, or three words: name 1.2 py39_0
    parts = re.fullmatch(r"=?\s*([\w.*]+)\s*(?:=|\s)\s*([\w.*]+)", text)
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
