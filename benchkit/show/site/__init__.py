"""The published site: months of results as a folder of pages that opens from disk."""

from benchkit.show.site.build import build_site
from benchkit.show.site.collect import SITE_METRICS

__all__ = ["SITE_METRICS", "build_site"]
