"""Scenarios with a known answer, which the tests assert and the benchmarks score.

Planted faults, known truths and simulated histories, each once, and how a table of measurements
gets into docs/. Nothing here imports from `tests` or `benchmarks`; the wheel does not contain it.
"""
