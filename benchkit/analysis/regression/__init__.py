"""Nightly histories and their regressions."""
