"""Upload datasets to an fsspec URL, from which workers on other machines read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchkit.measure.errors import DatasetError, error_summary
from benchkit.measure.settings import setting

#: URLs of datasets that are complete. Uploaded datasets never change.
_UPLOADED: set[str] = set()


def data_url() -> str:
    """Return the fsspec URL from which workers read datasets; "": they read the local folder.

    ``$BENCHKIT_DATA_URL``, else Dask's configuration ``benchkit.data-url``. Credentials and
    endpoints are those of fsspec's own configuration (``FSSPEC_S3_KEY`` and so on) or of the
    protocol's packages.
    """
    return str(setting("data-url") or "").rstrip("/")


def upload_dataset(
    folder: Path, manifest: Mapping[str, Any], manifest_name: str, label: str
) -> str:
    """Copy a dataset to `data_url`, unless it exists there; return the URL of its folder.

    The manifest is written last: if it exists, the copy is complete. Concurrent uploads write the
    same files.
    """
    url = f"{data_url()}/{folder.name}"
    if url in _UPLOADED:
        return url
    from fsspec.core import url_to_fs

    try:
        files, path = url_to_fs(url)
        remote_manifest = f"{path}/{manifest_name}"
        # Compare names only: files made on another machine have equal content (recipe, version and
        # parameters are in the folder name), but may differ in bytes.
        if not files.exists(remote_manifest) or (
            json.loads(files.cat_file(remote_manifest))["files"].keys() != manifest["files"].keys()
        ):
            for name in manifest["files"]:
                files.makedirs(f"{path}/{name}".rpartition("/")[0], exist_ok=True)
                files.put_file(str(folder / name), f"{path}/{name}")
            files.put_file(str(folder / manifest_name), remote_manifest)
    except Exception as error:
        raise DatasetError(
            f"{label} could not be copied to {url}: {error_summary(error)}; "
            "BENCHKIT_DATA_URL must be a URL that this machine may write and workers may read"
        ) from error
    _UPLOADED.add(url)
    return url
