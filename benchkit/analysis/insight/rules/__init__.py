"""Rules of the diagnosis: functions with the decorator `rule`, in a file for each topic.

``benchmarks/diagnosis.py`` counts what they find in runs with and without planted faults.
"""

from benchkit.analysis.insight.findings import RULES
from benchkit.analysis.insight.rules import client, cluster, functions, memory, tasks

__all__ = ["RULES", "client", "cluster", "functions", "memory", "tasks"]
