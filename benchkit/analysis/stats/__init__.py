"""Estimates, tests and stopping rules for arrays of runs."""
