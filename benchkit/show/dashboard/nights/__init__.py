"""Pages of nightly series."""
