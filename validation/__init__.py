"""Scenarios with a known answer, which the tests assert and the benchmarks score.

Planted faults, known truths and simulated histories, each once. Nothing here asserts, prints a
table or imports from `tests` or `benchmarks`; the wheel does not contain it.
"""
