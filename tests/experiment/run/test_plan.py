from collections import Counter

import pytest

from benchkit.errors import UsageError
from benchkit.experiment.run.plan import plan_measurements, read_plan, write_plan
from benchkit.store.store import Store

VARIANTS = {"x.a": 10.0, "x.b": 20.0}


def test_plan_measurements_has_complete_adjacent_blocks():
    plan = plan_measurements(["A", "B", "null"], VARIANTS, 4)

    assert Counter(m.key for m in plan) == {
        (block, arm, variant): 1 for block in range(4) for arm in "AB" for variant in VARIANTS
    } | {(block, "null", variant): 1 for block in range(4) for variant in VARIANTS}
    assert [m.order for m in plan] == list(range(24))
    for start in range(0, 24, 3):
        block = plan[start : start + 3]
        assert len({(m.block, m.variant) for m in block}) == 1


def test_plan_measurements_abba_cancels_drift():
    plan = plan_measurements(["A", "B", "null"], VARIANTS, 3)
    positions = {
        arm: sum(m.order for m in plan if m.arm == arm and m.variant == "x.a")
        for arm in ("A", "B", "null")
    }

    assert len(set(positions.values())) == 1


def test_plan_measurements_rejects_equal_arm_names():
    with pytest.raises(UsageError, match="two arms have the same name"):
        plan_measurements(["A", "A"], VARIANTS, 1)


def test_write_plan_keeps_plan_of_resumed_experiment(tmp_path):
    store = Store(tmp_path)
    write_plan(store, "01aa", plan_measurements(["A"], VARIANTS, 2), {"order": "abba"})

    write_plan(store, "01aa", plan_measurements(["A"], VARIANTS, 1), {"order": "random"})

    plan = read_plan(store, "01aa")
    assert (len(plan["plan"]), plan["order"]) == (4, "abba")


def test_read_plan_accepts_beginning_of_id(tmp_path):
    store = Store(tmp_path)
    for name, arms in (("01aa", ["A", "B"]), ("01ab", ["A"])):
        settings = {"order": "abba", "arms": [{"name": arm} for arm in arms]}
        write_plan(store, name, plan_measurements(arms, VARIANTS, 1), settings)

    assert read_plan(store, "01aa")["id"] == "01aa"
    assert read_plan(store, "latest")["id"] == "01ab"
    assert read_plan(store, "latest", n_arms=2)["id"] == "01aa"
    assert len(read_plan(store, "01ab")["plan"]) == 2


@pytest.mark.parametrize(
    ("experiment", "options", "message"),
    [
        ("latest", {"n_arms": 3},
         "none of 2 experiments in {} has 3 arms: `benchkit ab` starts one"),
        ("01ab", {"n_arms": 2},
         "experiment 01ab: has 1 arm, and 2 are needed: `benchkit ab` starts one"),
        ("01", {}, "experiment '01': 2 experiments of that id in {}: the latest are 01aa, 01ab"),
        ("zz", {}, "experiment 'zz': no experiment of that id in {}: the latest are 01aa, 01ab"),
        ("latest", {"having": "bisection"}, "no bisection in {}: `benchkit bisect` starts one"),
    ],
)  # fmt: skip
def test_read_plan_says_what_there_is(tmp_path, experiment, options, message):
    store = Store(tmp_path)
    for name, arms in (("01aa", ["A", "B"]), ("01ab", ["A"])):
        settings = {"order": "abba", "arms": [{"name": arm} for arm in arms]}
        write_plan(store, name, plan_measurements(arms, VARIANTS, 1), settings)

    with pytest.raises(UsageError) as error:
        read_plan(store, experiment, **options)
    assert str(error.value) == message.format(store.path)


def test_read_plan_of_store_without_experiments_names_the_command(tmp_path):
    with pytest.raises(UsageError) as error:
        read_plan(Store(tmp_path), "latest", n_arms=2)
    assert str(error.value) == f"no experiment in {tmp_path}: `benchkit ab` starts one"
