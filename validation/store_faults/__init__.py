"""Faults at each step of the operations of a store, and damaged run files.

Nothing here imports distributed: a small process forks faster.
"""
