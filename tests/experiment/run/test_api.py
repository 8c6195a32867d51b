"""Values of parameters for selected workloads."""

import pytest

from benchkit.errors import InvalidParameterError
from benchkit.experiment.run.api import with_parameters
from benchkit.measure.workloads import workload


def declared(**variants):
    @workload(category="own", variants=variants)
    def one(client, scale, **params):
        """Nothing."""

    return one.variants()


@pytest.mark.parametrize(
    ("values", "value", "hint"),
    [
        (["thin", "square"], "thim", "did you mean 'thin'?"),
        (["thin", "fast-square"], "nope", "give one of thin, fast-square"),
    ],
)
def test_with_parameters_refuses_other_words(values, value, hint):
    with pytest.raises(InvalidParameterError) as refused:
        with_parameters(declared(kind=values), {"kind": value})

    assert str(refused.value) == f"own.one has no kind={value!r}: {hint}"


@pytest.mark.parametrize("values", [["thin"], ["s3://a/b", "s3://a/c"], ["a.csv", "b.csv"]])
def test_with_parameters_accepts_text_where_values_are_open(values):
    (variant,) = with_parameters(declared(kind=values), {"kind": "other"})

    assert variant.params == {"kind": "other"}
