"""Faults planted in runs on real clusters, with the findings of the diagnosis that are true."""
