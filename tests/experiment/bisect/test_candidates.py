"""Builds that a bisection searches."""

import pytest

from benchkit.errors import UsageError
from benchkit.experiment.bisect import candidates
from benchkit.experiment.environment.python import choose_python


@pytest.mark.parametrize(
    ("package", "message"),
    [
        (
            "dsk",
            r"--package dsk: the index has no release for Python [\d.]+: did you mean 'dask'\?",
        ),
        ("dask", "--bad 2024.8.0: the index has no such release of dask .* it has none between"),
        # A package of that name exists.
        ("bokhe", r"--bad 2024.8.0: the index has no such release of bokhe .* mean 'bokeh'\?"),
    ],
)
def test_list_releases_names_package_similar_to_unknown_one(package, message, monkeypatch):
    def newest_release(requirement, python, **where):
        return "2026.8.0" if requirement in ("dask", "bokhe") else None

    monkeypatch.setattr(candidates, "newest_release", newest_release)

    with pytest.raises(UsageError, match=message):
        candidates.list_releases(package, "2024.1.0", "2024.8.0", choose_python(None))
