"""The checks of the machine-learning workloads."""

import pytest
from helpers.wrong_results import item, nan, prove, proved_here


def quarter_reversed(predicted):
    predicted = predicted.copy()
    part = slice(0, len(predicted) // 4)
    predicted[part] = predicted[part][::-1]
    return predicted


WRONG = {
    "ml.xgboost_train": {
        "a prediction is lost": item("predicted", lambda predicted: predicted[:-1]),
        "they are those of other rows": item("predicted", lambda predicted: predicted[::-1]),
        "a quarter are those of other rows": item("predicted", quarter_reversed),
        "a round is lost": item("log", lambda log: log[:-1]),
        "a part of the training was left out": item(
            "predicted_train", lambda predicted: predicted * 0.99
        ),
        "not a number": item("predicted", lambda predicted: predicted * float("nan")),
    },
    "ml.preprocess": {
        "a row is lost": item("rows", lambda rows: rows - 1),
        "a fee is lost": item("fees", lambda fees: fees - 2.5),
        "a gap was not seen": item("missing", lambda missing: missing - 1),
        "a trip went elsewhere": item(
            "routes", lambda routes: routes.assign(sum=routes["sum"].to_numpy()[::-1])
        ),
        "a route is lost": item("routes", lambda routes: routes.iloc[1:]),
        "long trips were kept": item("limit", lambda limit: limit * 2),
        "not a number": item("fees", nan),
    },
    "ml.hpo_random_search": {
        "a trial is lost": item("scores", lambda scores: scores[:-1]),
        "a score did not come through": item("reports", lambda reports: reports[:-1]),
        "a score came twice": item("reports", lambda reports: [*reports, reports[0]]),
        "scores are another trial's": lambda result: {
            "scores": result["scores"][::-1],
            "reports": list(enumerate(result["scores"][::-1])),
        },
    },
    "ml.optuna_hpo": {
        "a trial is lost": lambda trials: trials[:-1],
        "parameters were tried twice": lambda trials: [trials[1], *trials[1:]],
        "a trial did not end": lambda trials: [{**trials[0], "state": "RUNNING"}, *trials[1:]],
        "scores are another trial's": lambda trials: [
            {**each, "score": other["score"]}
            for each, other in zip(trials, trials[1:] + trials[:1], strict=True)
        ],
    },
    "ml.optuna_xgb_distributed": {
        "a trial is lost": item("errors", lambda errors: errors[:-1]),
        "an error is too good": item("errors", lambda errors: [e * 0.5 for e in errors]),
        "the best is another": item(
            "best", lambda best: {**best, "eta": 0.1 + (best["eta"] + 0.15) % 0.5}
        ),
        "not a number": item("errors", lambda errors: [float("nan"), *errors[1:]]),
    },
    "ml.embarrassingly_parallel": {
        "a file was not counted": item(
            "counts", lambda counts: {m: (hits, n - 1) for m, (hits, n) in counts.items()}
        ),
        "an archive is lost": item("counts", lambda counts: dict(sorted(counts.items())[:-1])),
        "a spelling was missed": item(
            "counts", lambda counts: {m: (max(0, h - 1), n) for m, (h, n) in counts.items()}
        ),
        "the first month is another": item("first", "0412"),
    },
}


@pytest.mark.parametrize("variant", proved_here(WRONG), ids=lambda variant: variant.name)
def test_check_rejects_wrong_results(client, variant):
    prove(client, variant, WRONG)
