from collections import Counter

import pytest

from benchkit.errors import UsageError
from benchkit.experiment.run.plan import plan_measurements, read_plan, write_plan

VARIANTS = {"x.a": 10.0, "x.b": 20.0}


def test_each_variant_runs_once_in_each_arm_of_each_block_back_to_back():
    plan = plan_measurements(["A", "B", "null"], VARIANTS, 4)

    assert Counter(m.key for m in plan) == {
        (block, arm, variant): 1 for block in range(4) for arm in "AB" for variant in VARIANTS
    } | {(block, "null", variant): 1 for block in range(4) for variant in VARIANTS}
    assert [m.order for m in plan] == list(range(24))
    for start in range(0, 24, 3):
        together = plan[start : start + 3]
        assert len({(m.block, m.variant) for m in together}) == 1


def test_a_steady_drift_hits_all_arms_alike():
    plan = plan_measurements(["A", "B", "null"], VARIANTS, 4)
    places = {
        arm: sum(m.order for m in plan if m.arm == arm and m.variant == "x.a")
        for arm in ("A", "B", "null")
    }

    assert len(set(places.values())) == 1


def test_a_drawn_order_is_the_same_for_the_same_seed_and_favours_nobody():
    first = plan_measurements(["A", "B"], {"x.a": 1.0}, 400, order="random", seed=3)
    again = plan_measurements(["A", "B"], {"x.a": 1.0}, 400, order="random", seed=3)
    other = plan_measurements(["A", "B"], {"x.a": 1.0}, 400, order="random", seed=4)

    assert first == again
    assert first != other
    ahead = sum(m.arm == "A" for m in first[::2])
    assert 150 < ahead < 250


@pytest.mark.parametrize("options", [{"order": "aabb"}])
def test_an_unknown_order_is_refused(options):
    with pytest.raises(UsageError, match="must be abba or random"):
        plan_measurements(["A"], VARIANTS, 1, **options)


def test_equal_names_of_arms_are_refused():
    with pytest.raises(UsageError, match="two arms have the same name"):
        plan_measurements(["A", "A"], VARIANTS, 1)


def test_a_plan_is_found_again_by_the_beginning_of_its_id(tmp_path):
    for name in ("01aa", "01ab"):
        path = tmp_path / "experiments" / name / "plan.json"
        write_plan(path, plan_measurements(["A"], VARIANTS, 1), {"order": "abba"})

    assert read_plan(tmp_path, "01aa")["id"] == "01aa"
    assert read_plan(tmp_path, "latest")["id"] == "01ab"
    assert len(read_plan(tmp_path, "01ab")["plan"]) == 2
    with pytest.raises(UsageError, match="2 experiments of that id"):
        read_plan(tmp_path, "01")
    with pytest.raises(UsageError, match="no experiment of that id"):
        read_plan(tmp_path, "zz")
