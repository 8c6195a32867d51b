"""Import path of the effect estimates, kept for other tools; the code is in `stats.effects`."""

from benchkit.analysis.stats.effects import Effects, compare, compare_bootstrap

__all__ = ["Effects", "compare", "compare_bootstrap"]
