"""Import path of the effect estimates, kept for other tools; the code is in `stats.effects`."""

from benchkit.analysis.stats.effects import Comparison, compare, compare_bootstrap

__all__ = ["Comparison", "compare", "compare_bootstrap"]
