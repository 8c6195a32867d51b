"""The Python functions refuse invalid arguments before they write anything."""

import pytest

import benchkit
from benchkit.errors import UsageError

SCALE = "must be a number above 0 and up to 1"
TEXT = "must be text"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": 2}, f"scale=2: {SCALE}"),
        ({"scale": 0}, f"scale=0: {SCALE}"),
        ({"scale": "big"}, f"scale='big': {SCALE}"),
        ({"repeats": 0}, "repeats=0: must be a whole number, 1 or more"),
        ({"capture": "ful"}, "capture 'ful': no capture level named 'ful': did you mean 'full'?"),
        ({"capture": 3}, f"capture=3: {TEXT}"),
        ({"tags": "x"}, "tags='x': must be a dict"),
        ({"params": "n=3"}, "params='n=3': must be a dict"),
        ({"folders": "here"}, "here: no such folder of workloads"),
        ({"environment": 3}, "environments=[3]: must be a list of texts"),
        ({"select": 3}, f"-k 3: {TEXT}"),
    ],
)
def test_run_refuses_invalid_argument(tmp_path, options, message):
    with pytest.raises(UsageError) as caught:
        benchkit.run("sched.tree", store=tmp_path / "new", **options)

    assert str(caught.value).startswith(message)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["", 7])
def test_run_refuses_invalid_name(tmp_path, name):
    with pytest.raises(UsageError, match=r"workload=''|names=\(7,\)"):
        benchkit.run(name, store=tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metrics": ["durration"]}, "no metric named 'durration': did you mean 'duration'?"),
        ({"metrics": []}, "metrics: is empty"),
        ({"environments": "tipp"}, "no environment named 'tipp': did you mean 'tip'?"),
        ({"budget_s": "ten"}, "budget_s='ten': must be a number of seconds above 0"),
        ({"repeats": 0}, "repeats=0"),
        ({"tags": "a"}, "tags='a': must be a dict"),
        ({"night": 2026}, "2026 is not a time"),
    ],
)
def test_nightly_refuses_invalid_argument(tmp_path, options, message):
    options = {"night": "2026-11-20", **options}
    with pytest.raises(UsageError) as caught:
        benchkit.nightly("sched.tree", store=tmp_path / "new", **options)

    assert str(caught.value).startswith(message)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"good": ""}, "good='': is empty"),
        ({"bad": 3}, "bad=3: must be text"),
        ({"budget_s": "ten"}, "budget_s='ten': must be a number of seconds above 0"),
        ({"budget_s": 0}, "budget_s=0: must be a number of seconds above 0"),
    ],
)
def test_bisect_refuses_invalid_argument(tmp_path, options, message):
    options = {"good": "2026.7.0", "bad": "2026.8.0", "package": "dask", **options}
    with pytest.raises(UsageError) as caught:
        benchkit.bisect("sched.tree", store=tmp_path / "new", **options)

    assert str(caught.value).startswith(message)
    assert not (tmp_path / "new").exists()
