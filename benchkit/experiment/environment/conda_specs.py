"""Translate conda package specifications to pip requirement lines.

`numpy =1.26` becomes `numpy==1.26.*`. A specification that pip cannot express is returned with a
reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from packaging.specifiers import InvalidSpecifier, SpecifierSet

__all__ = ["CondaRequirement", "translate_conda_spec"]

#: Conda package -> its name on the package index.
_PYPI_NAMES = {
    "dask-core": "dask",
    "msgpack-python": "msgpack",
    "python-graphviz": "graphviz",
    "pytorch": "torch",
    "pyarrow-core": "pyarrow",
    "matplotlib-base": "matplotlib",
    "xarray-base": "xarray",
    "seaborn-base": "seaborn",
    "brotli-python": "brotli",
    "pytables": "tables",
    "python-blosc": "blosc",
    "python-confluent-kafka": "confluent-kafka",
    "python-duckdb": "duckdb",
    "python-fastjsonschema": "fastjsonschema",
    "python-lmdb": "lmdb",
    "python-tzdata": "tzdata",
    "python-xxhash": "xxhash",
    "opencv": "opencv-python",
    "py-opencv": "opencv-python",
    "py-xgboost": "xgboost",
    "py-xgboost-cpu": "xgboost-cpu",
    "pytorch-cpu": "torch",
    "pytorch-gpu": "torch",
    "tensorflow-base": "tensorflow",
}
#: Packages whose conda dependencies are extras on the package index.
_EXTRAS = {"dask": "dask[array,dataframe,diagnostics]"}
#: Conda packages that are not Python packages: programs and libraries.
_NOT_PYTHON = {
    "arrow-cpp", "aws-sdk-cpp", "binutils", "blas", "blosc", "boost-cpp", "brotli", "bzip2",
    "c-ares", "c-blosc", "c-blosc2", "c-compiler", "ca-certificates", "cairo", "cfitsio", "clang",
    "compilers", "conda", "cuda-toolkit", "cudatoolkit", "cxx-compiler", "eccodes", "esmf",
    "expat", "ffmpeg", "fftw", "fontconfig", "fortran-compiler", "freetype", "freexl", "gcc",
    "geos", "geotiff", "gflags", "gfortran", "giflib", "git", "glib", "glog", "graphviz", "gsl",
    "gxx", "hdf4", "hdf5", "icu", "intel-openmp", "jansson", "jemalloc", "json-c", "keyutils",
    "krb5", "lcms2", "ld_impl_linux-64", "lerc", "llvm-openmp", "lz4-c", "lzo", "make", "mamba",
    "metis", "micromamba", "mkl", "mpi", "mpich", "ncurses", "nccl", "nco", "netcdf-fortran",
    "nodejs", "nspr", "nss", "openblas", "openjdk", "openjpeg", "openmpi", "openssl", "orc",
    "parallelio", "pcre", "pcre2", "pip", "pixman", "poppler", "proj", "python_abi",
    "pytorch-cuda", "re2", "readline", "s2n", "s3cmd", "snappy", "spdlog", "sqlite",
    "sysroot_linux-64", "tbb", "tk", "tzcode", "tzdata", "ucx", "udunits2", "unixodbc", "xerces-c",
    "xz", "yaml", "yaml-cpp", "zfp", "zlib", "zlib-ng", "zstd",
}  # fmt: skip
#: Libraries and virtual packages, such as libnetcdf, _libgcc_mutex, xorg-libxau and abseil-cpp.
_LIBRARY = re.compile(r"_.+|lib.+|(xorg|aws-c|fonts?)-.+|.+-cpp|.+_linux-\d+")
#: Python packages with the name of a library.
_LIBRARY_NAMES = {"libarchive-c", "libcst", "libpysal", "librosa", "libsass", "libtmux", "libusb1"}


@dataclass(frozen=True)
class CondaRequirement:
    """Translation of an entry of a conda file; all fields are empty for ``pip``.

    Parameters
    ----------
    requirement : str
        Pip requirement line.
    python : str
        Version of Python.
    reason : str
        Reason why pip cannot express the entry, or a part of it.
    """

    requirement: str = ""
    python: str = ""
    reason: str = ""


def translate_conda_spec(spec: str) -> CondaRequirement:
    """Translate an entry of `dependencies` in a conda file to a pip requirement.

    Parameters
    ----------
    spec : str
        Such as ``conda-forge::numpy =1.26`` or ``pandas >=2,<3``.

    Returns
    -------
    CondaRequirement
        All fields are empty for ``pip`` itself.

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
    if name in _NOT_PYTHON or (_LIBRARY.fullmatch(name) and name not in _LIBRARY_NAMES):
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
    name = _PYPI_NAMES.get(name, _EXTRAS.get(name, name))
    reason = f"build {build!r} has no equivalent: any build is used" if build else ""
    return CondaRequirement(f"{name}{allowed}", reason=reason)


def _split_version(text: str) -> tuple[str, str]:
    """Return pip's specifier and conda's build string."""
    if not text:
        return "", ""
    # name=1.2=py39_0, or separated by spaces: name 1.2 py39_0
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
