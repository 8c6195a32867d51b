"""Statistics of runs: comparisons, change points and regressions."""
