"""Findings of large causes of the blame that no rule explains."""

from __future__ import annotations

from collections.abc import Iterable

from benchkit.analysis.insight.blame import CLIENT
from benchkit.analysis.insight.findings import LARGE_SHARE, Case, Finding
from benchkit.analysis.insight.limits import CAUSES_SHORT
from benchkit.formatting import format_quantity

#: Cause -> what to change. Computing is what a run is for; what is unexplained has no advice.
CHANGES = {
    "restricted": "let more workers run these tasks: no workers=, or less of a resource for each",
    "transfer": "fewer, larger workers; chunks that stay on their worker",
    "disk": "more memory per worker, smaller chunks, or fewer results that are needed at once",
    "worker paused": "more memory per worker, or smaller chunks",
    "no worker": "wait for the workers before the work: client.wait_for_workers",
    "queued": "let idle workers have them: client.rebalance if few workers have the data, work "
    "stealing, a larger distributed.scheduler.worker-saturation",
    "worker loop": "code that holds the GIL blocks it: more processes with fewer threads",
    "scheduler": "fewer, larger tasks",
    "messages": "fewer, larger tasks",
    "graph": "a smaller graph: larger chunks, fewer layers",
    "client graph": "a smaller graph: larger chunks, fewer layers",
    "gather": "reduce the results on the cluster, before compute()",
    "client": "move this work into tasks, or do it while the cluster computes: as_completed",
}


def large_causes(case: Case, found: Iterable[Finding]) -> list[Finding]:
    """Return a finding of each large cause that no rule explains."""
    if case.limits is None:
        return []
    explained = {cause for finding in found for cause in finding.causes}
    findings = []
    for cause, change in CHANGES.items():
        seconds = case.blamed(cause)
        if cause in CLIENT:
            seconds -= case.blamed(cause, window=(0.0, case.usual_start))
        share = seconds / case.duration
        if cause in explained or share < LARGE_SHARE or seconds < case.min_cost:
            continue
        findings.append(
            Finding(
                what=f"much of the run is {CAUSES_SHORT[cause]}",
                seconds=seconds,
                evidence=f"{format_quantity(seconds, 's')}, {share:.0%} of the run",
                change=change,
                window=case.longest_span(cause),
                rule=cause.replace(" ", "_"),
                causes=(cause,),
            )
        )
    return findings
