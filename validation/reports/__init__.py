"""Pairs of slow and mended Dask code, written from public reports of slow code.

They were written by a reader of the reports, not of the rules that explain runs, so they show
whether the explanations are right for code that their authors did not foresee. Half of them
(`table.WORK`) may be looked at while rules are written; the other half (`table.HELD_OUT`) is
scored once at the end. `benchmarks/reports.py` records and scores both.
"""
