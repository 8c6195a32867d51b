import distributed.scheduler
import pytest

from benchkit._compat.distributed_internals import UnsupportedRelease, check_internals


def test_installed_release_is_supported():
    check_internals()


def test_release_with_other_internals_is_refused_in_one_line(monkeypatch):
    monkeypatch.delattr(distributed.scheduler.SchedulerState, "_TRANSITIONS_TABLE")

    with pytest.raises(UnsupportedRelease) as error:
        check_internals()

    assert str(error.value) == (
        f"distributed {distributed.__version__}: has no Scheduler._TRANSITIONS_TABLE: virtual "
        "clusters are checked with releases 2023.4.1 to 2026.8.0"
    )
