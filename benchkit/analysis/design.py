"""Import path of the stopping rule, kept for other tools; the code is in `stats.stopping`."""

from benchkit.analysis.stats.stopping import LOOKS, next_step, power_table, runs_needed

__all__ = ["LOOKS", "next_step", "power_table", "runs_needed"]
