"""Diagnose a run: apply all rules and order what they find by its cost."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchkit.analysis.insight.blame import COMPUTING
from benchkit.analysis.insight.findings import MIN_S, MIN_SHARE, Case, Finding
from benchkit.analysis.insight.limits import Limits
from benchkit.analysis.insight.rules import RULES
from benchkit.analysis.insight.rules.causes import large_causes
from benchkit.formatting import counted, format_quantity, short_group
from benchkit.predict.disturbance import disturbance
from benchkit.store.run import Run
from benchkit.table import Table
from benchkit.text import html_text

#: A group whose tasks computed for this share of the run is named.
MAIN_SHARE = 0.5
#: Code that measures recorded code as it is and with other settings of a LocalCluster.
SNIPPET = """\
import benchkit
from distributed import Client, LocalCluster

options = {options!r}
for turn in benchkit.interleave(list(options)):
    with LocalCluster(**options[turn.arm]) as cluster, Client(cluster) as client:
        with turn.record(client, workload={workload!r}):
            ...  # the recorded code
"""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What was found in a run."""

    run_id: str  # run_id, workload: The run
    workload: str
    environment: str  # Its environment; empty: the run is of recorded code
    duration: float  # Its wall time in s; NaN if the clock never stopped
    limits: Limits | None  # Its limits; None without a task graph
    findings: list[Finding]  # The most expensive first
    disturbed: tuple[str, ...] = ()  # That other processes slowed the run
    computed: tuple[str, ...] = ()  # The group with most of the run, and its line of user code

    @property
    def conclusion(self) -> list[str]:
        """That the run was disturbed, where the time went, what bounds it and what computed."""
        # Without a task graph it is not known where the time went.
        sentences = self.limits.sentences if self.limits else []
        return [*self.disturbed, *sentences, *self.computed]

    def to_records(self) -> list[dict[str, Any]]:
        """Return a flat object per finding, for ``--json``."""
        return [
            {
                "run": self.run_id,
                "workload": self.workload,
                **asdict(found),
                "settings": dict(found.settings or {}),
                "share": found.seconds / self.duration if self.duration else None,
                "disturbed": " ".join(self.disturbed),
                "prove": self.proof(found),
            }
            for found in self.findings
        ]

    def proof(self, found: Finding) -> str:
        """Return what would prove a finding: a command, code for recorded code, or no text."""
        settings = found.settings or {}
        if not settings:
            return ""
        if self.environment:
            sweeps = [f"--sweep {name}={value}" for name, value in settings.items()]
            return shlex.join(["benchkit", "ab", self.environment, self.workload]) + "".join(
                f" {sweep}" for sweep in sweeps
            )
        cluster = {
            name.partition(".")[2]: value
            for name, value in settings.items()
            if name.startswith("cluster.")
        }
        variables = {
            name.partition(".")[2]: value
            for name, value in settings.items()
            if name.startswith("variables.")
        }
        if variables:
            cluster["env"] = variables
        return SNIPPET.format(options={"before": {}, "after": cluster}, workload=self.workload)

    def evidence(self, found: Finding) -> str:
        """Return the evidence of a finding, and which part of its cost others have, too."""
        if found.shared < max(MIN_S, MIN_SHARE * self.duration):
            return found.evidence
        seconds = format_quantity(found.shared, "s")
        return f"{found.evidence}; {seconds} of the cost are also those of the findings above"

    def to_table(self) -> Table:
        """Return the findings as a table."""
        return Table(
            [
                {
                    "cost": format_quantity(found.seconds, "s"),
                    "finding": found.what,
                    "evidence": self.evidence(found),
                    "change": found.change,
                }
                for found in self.findings
            ]
        )

    @property
    def sentence(self) -> str:
        """Number of findings, in one line."""
        if not self.findings:
            return f"nothing found that costs {MIN_SHARE:.0%} of the duration and {MIN_S:g} s"
        return f"{counted(len(self.findings), 'finding')}, the most expensive first"

    def __repr__(self) -> str:
        parts = [*self.conclusion, "", self.sentence]
        return "\n".join([*parts, self.to_table().to_text()] if self.findings else parts)

    def _repr_html_(self) -> str:
        # A list, because a table with three columns of sentences does not fit a narrow screen.
        items = []
        for found in self.findings:
            proof = (
                f" Prove it: <pre>{html_text(self.proof(found))}</pre>" if found.settings else ""
            )
            items.append(
                f"<li><b>{html_text(found.what)}</b> ({format_quantity(found.seconds, 's')}): "
                f"{html_text(self.evidence(found))}. Change: {html_text(found.change)}.{proof}</li>"
            )
        text = f"<p>{html_text(' '.join(self.conclusion))}</p><p>{html_text(self.sentence)}</p>"
        return text + (f"<ol>{''.join(items)}</ol>" if items else "")


def diagnose(run: Run) -> Diagnosis:
    """Return what makes a run slower than it has to be: `Run.diagnose`."""
    case = Case(run)
    found: list[Finding] = []
    has_data = case.duration > 0 and "workers" in run.tree.children
    if has_data:
        found = _reported(case, (find(case) for find in RULES.values()))
        found += _reported(case, large_causes(case, found))
    return Diagnosis(
        run_id=run.id,
        workload=run.workload,
        environment=run.record["environment"] if run.record.get("source_hash") else "",
        duration=case.duration,
        limits=case.limits if has_data else None,
        findings=_share(sorted(found, key=lambda finding: -finding.seconds), case),
        disturbed=disturbance(run),
        computed=_computed(case) if has_data else (),
    )


def _reported(case: Case, findings: Iterable[Finding | None]) -> list[Finding]:
    """Return the findings that cost enough, with what they cost at most."""
    priced = [
        replace(each, seconds=float(min(each.seconds, case.max_saving(each.causes))))
        for each in findings
        if each is not None
    ]
    return [each for each in priced if each.is_always_reported or each.seconds >= case.min_cost]


def _computed(case: Case) -> tuple[str, ...]:
    """Return a sentence about the group whose tasks computed for most of the run, if one did."""
    if case.limits is None:
        return ()
    blame = case.limits.blame
    own = blame[blame["origin"].isin(COMPUTING)]
    shares = (own["stop"] - own["start"]).groupby(own["group"]).sum() / case.duration
    if shares.empty or shares.max() < MAIN_SHARE:
        return ()
    line = case.user_line(str(shares.idxmax()))
    text = f"{shares.max():.0%} is in tasks of {short_group(str(shares.idxmax()))}"
    return (f"{text}{line and f', most of it in {line}'}.",)


def _share(findings: list[Finding], case: Case) -> list[Finding]:
    """Note which seconds of each finding more expensive ones have, too.

    Each cause has the seconds of the blame, once: what is not shared never exceeds the run.
    """
    if case.limits is None:
        return findings
    blame = case.limits.blame
    seconds = (blame["stop"] - blame["start"]).groupby([blame["cause"], blame["origin"]]).sum()
    left = seconds.sort_values(ascending=False).to_dict()
    shared = []
    for found in findings:
        missing = found.seconds
        for pair in left:
            if not set(found.causes).isdisjoint(pair):
                taken = min(missing, left[pair])
                left[pair] -= taken
                missing -= taken
        shared.append(replace(found, shared=missing))
    return shared
