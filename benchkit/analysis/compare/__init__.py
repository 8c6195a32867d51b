"""Comparisons of sets of runs."""
