import pytest

from benchkit.errors import InvalidSelectionError
from benchkit.store.selector import parse_selection, select_runs


def test_select_runs_applies_filters(filled):
    assert len(select_runs(filled, "env:main")) == 3
    assert len(select_runs(filled, "env:main,tag:variant=A")) == 2
    assert len(select_runs(filled, "workload:frame.*")) == 2
    assert len(select_runs(filled, "param:chunks=thin")) == 2


def test_select_runs_accepts_beginning_of_commit(store, make_run):
    store.add(make_run(groups=False, git_commit="abc123def"))
    store.add(make_run(groups=False, git_commit="fff"))

    assert len(select_runs(store, "commit:abc12")) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("main", "'main' must be KEY:VALUE"),
        ("evn:main", "unknown key 'evn': did you mean 'env'?"),
        ("tag:A", "must be tag:NAME=VALUE"),
        ("env:a,env:b", "environment is given twice"),
        ("env:", "must be KEY:VALUE"),
    ],
)
def test_parse_selection_rejects_invalid_text(text, message):
    with pytest.raises(InvalidSelectionError) as caught:
        parse_selection(text)

    assert message in str(caught.value)
