"""Rules of the diagnosis: functions with the decorator `rule`, in a file for each topic."""

from benchkit.analysis.insight.findings import RULES
from benchkit.analysis.insight.rules import client, cluster, functions, memory, tasks

__all__ = ["RULES", "client", "cluster", "functions", "memory", "tasks"]
