"""Datasets where workers on other machines can read them: copied once to an fsspec URL.

Knows URLs and what is there already; does not know how a dataset is made.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dask

from benchkit.measure.errors import DatasetError

__all__ = ["data_url", "publish"]

#: URLs that this process has looked at already: what is published is never changed.
_PUBLISHED: set[str] = set()


def data_url() -> str:
    """Return where workers find datasets, as an fsspec URL; empty: in the folder they are made in.

    ``$BENCHKIT_DATA_URL``, else Dask's configuration ``benchkit.data-url``. Credentials and
    endpoints are those of fsspec's own configuration (``FSSPEC_S3_KEY`` and so on) or of the
    protocol's packages.
    """
    chosen = os.environ.get("BENCHKIT_DATA_URL") or dask.config.get("benchkit.data-url", None)
    return str(chosen or "").rstrip("/")


def publish(folder: Path, manifest: Mapping[str, Any], manifest_name: str, label: str) -> str:
    """Copy a dataset to `data_url`, unless it is there; return the URL of its own folder.

    The manifest comes last, so that whoever finds it finds all. Two processes that do so at once
    write the same.

    Parameters
    ----------
    folder : Path
        Where the dataset is on this machine.
    manifest : mapping
        Its ``files`` are copied.
    manifest_name : str
        Name of the manifest's own file.
    label : str
        What to call it in an error.

    Raises
    ------
    DatasetError
        The URL cannot be written to, or its protocol needs a package that is not installed.
    """
    url = f"{data_url()}/{folder.name}"
    if url in _PUBLISHED:
        return url
    from fsspec.core import url_to_fs

    try:
        files, path = url_to_fs(url)
        there = f"{path}/{manifest_name}"
        # Made on another machine they may differ in bytes, not in what they hold: the folder's name
        # says recipe, version and parameters.
        if not files.exists(there) or (
            json.loads(files.cat_file(there))["files"].keys() != manifest["files"].keys()
        ):
            for name in manifest["files"]:
                files.makedirs(f"{path}/{name}".rpartition("/")[0], exist_ok=True)
                files.put_file(str(folder / name), f"{path}/{name}")
            files.put_file(str(folder / manifest_name), there)
    except Exception as error:
        text = (str(error).strip().splitlines() or [""])[0]
        raise DatasetError(
            f"{label} could not be copied to {url}: {type(error).__name__}: {text}; "
            "BENCHKIT_DATA_URL must be a URL that this machine may write and workers may read"
        ) from error
    _PUBLISHED.add(url)
    return url
