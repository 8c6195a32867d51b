"""The published site: months of results as a folder of pages that opens from disk."""

from benchkit.show.site.build import SITE_METRICS, build_site

__all__ = ["SITE_METRICS", "build_site"]
