"""Predict the duration of a run after a change: one reader of runs, a replay, and its answer."""
