"""nightly."""
