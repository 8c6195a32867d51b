"""Change points in nightly series."""
