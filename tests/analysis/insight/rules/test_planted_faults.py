"""Each rule finds its planted fault, and not what is similar."""

from __future__ import annotations

import pytest

from benchkit.analysis.insight.diagnose import all_rules, diagnose
from benchkit.analysis.insight.findings import Case
from validation.planted_faults import PLANTED, SIMILAR, run_of


def test_every_rule_has_a_planted_fault():
    assert sorted(PLANTED) == sorted(all_rules())


@pytest.mark.parametrize("rule", PLANTED)
def test_rule_finds_its_planted_fault(tmp_path, rule):
    run = run_of(tmp_path, **PLANTED[rule])

    found = all_rules()[rule](Case(run))

    assert found is not None
    assert 0 < found.seconds
    assert all([found.what, found.evidence, found.change])
    if found.window:
        assert 0 <= found.window[0] < found.window[1] <= run.duration
    names = [each.rule for each in diagnose(run).findings]
    assert rule in names, f"it costs {found.seconds:.3f} s"


@pytest.mark.parametrize("rule", SIMILAR)
def test_rule_does_not_find_what_is_similar(tmp_path, rule):
    assert all_rules()[rule](Case(run_of(tmp_path, **SIMILAR[rule]))) is None
