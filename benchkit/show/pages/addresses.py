"""Files of the published site that texts lead to."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote

from benchkit.show.pages.page import Target


def page_name(workload: str) -> str:
    """Return the file name of the page of a workload, without its suffix.

    Examples
    --------
    >>> page_name("array.sum[k=1]").startswith("array.sum-k-1--")
    True
    """
    stem = re.sub(r"[^\w.]+", "-", workload).strip("-.")[:80]
    return f"{stem}--{hashlib.sha256(workload.encode()).hexdigest()[:6]}"


def site_address(root: str, target: Target) -> str | None:
    """Return the address of a page below the root of a site; runs have no page there."""
    if target.view == "history":
        metric = target.keys.get("metric")
        end = f"#metric={metric}" if metric else ""
        return f"{root}w/{quote(page_name(str(target.keys['workload'])))}.html{end}"
    if target.view == "regression":
        return f"{root}regressions/{quote(str(target.keys['id']))}.html"
    return None
