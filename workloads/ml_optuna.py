"""Machine-learning workloads: searches by Optuna, with a study on the cluster or in the client."""

from __future__ import annotations

from _forests import forest_score, random_forests
from _regression import regression

from benchkit.measure import expect, workload

N_TRIALS, N_ROUNDS = 3, 4


@workload(
    category="ml",
    tags=["ml", "cpu", "coordination", "ci", "nightly"],
    requires=["numpy", "sklearn", "optuna", "optuna_integration"],
    metrics={"best_score": "1"},
)
def optuna_hpo(client, scale, seed):
    """Search parameters of a classifier with Optuna, one task per trial of a single study.

    The storage of the study is on the scheduler. Parameters are drawn locally and enqueued; each
    task takes the next set, cross-validates on handwritten digits, and stores the score. Stresses
    the scheduler as a server of many small requests from workers, in addition to its own work.

    Scale: 10 trials per thread x fraction.
    About 5 s on 2 x 1 x 1 GiB.
    Check: each set of parameters was tried once and completed; the best score is reproduced
    locally, and is far above chance.
    """
    import optuna
    from distributed import wait
    from optuna_integration import DaskStorage

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", storage=DaskStorage(client=client))
    for params in _trials(scale, seed):
        study.enqueue_trial(params)
    count = len(_trials(scale, seed))
    futures = [client.submit(study.optimize, _score, n_trials=1, pure=False) for _ in range(count)]
    wait(futures)
    client.gather(futures)  # raises the error of a trial
    return [
        {"params": trial.params, "score": trial.value, "state": trial.state.name}
        for trial in study.get_trials(deepcopy=False)
    ]


@optuna_hpo.check
def _(result, scale, seed):
    import optuna

    trials = _trials(scale, seed)
    expect([each["state"] for each in result], equals=["COMPLETE"] * len(trials), what="states")
    expect([each["params"] for each in result], equals=trials, what="parameters that were tried")
    best = max(result, key=lambda each: each["score"])
    again = _score(optuna.trial.FixedTrial(best["params"]))
    expect(best["score"], close_to=again, rtol=1e-9, what="best score, done again")
    expect(best["score"], at_least=0.7, at_most=1.0, what="best score")
    return {"best_score": best["score"]}


@workload(
    category="ml",
    tags=["ml", "cpu", "transfer", "nightly"],
    requires=["numpy", "optuna", "xgboost", "dask.array"],
    deadline_s=180,
    metrics={"rmse": "1"},
)
def optuna_xgb_distributed(client, scale, seed, prepared):
    """Search parameters of boosted trees with Optuna, where each trial trains on all workers.

    Three trials of four rounds, one after another, with persisted data. Stresses opening and
    closing a network between the workers repeatedly, between short computations.

    Scale: 0.01 x cluster memory, linear; 20 features, 4 chunks per thread.
    About 5 s on 2 x 1 x 1 GiB.
    Check: the error of every trial is at most that of the mean; the best error is reproduced when
    the best parameters, as the study returns them, are trained again.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.RandomSampler(seed=seed)
    study = optuna.create_study(direction="minimize", sampler=sampler)
    study.optimize(lambda trial: _train(trial, client, prepared), n_trials=N_TRIALS)
    return {"errors": [trial.value for trial in study.trials], "best": study.best_params}


@optuna_xgb_distributed.prepare
def _(scale, seed):
    return regression(scale, seed)


@optuna_xgb_distributed.check
def _(client, result, prepared):
    import optuna

    _, y_test = prepared["test"]
    errors = result["errors"]
    expect(len(errors), equals=N_TRIALS, what="trials")
    expect(errors, at_least=0.0, at_most=float(y_test.std().compute()), what="errors")
    again = _train(optuna.trial.FixedTrial(result["best"]), client, prepared)
    expect(min(errors), close_to=again, rtol=1e-3, what="error of the best, trained again")
    return {"rmse": min(errors)}


def _trials(scale, seed):
    return random_forests(max(6, round(10 * scale.threads * scale.fraction)), seed)


def _score(trial):
    return forest_score(
        {
            "n_estimators": trial.suggest_int("n_estimators", 3, 15),
            "max_depth": trial.suggest_int("max_depth", 2, 12),
            "max_features": trial.suggest_float("max_features", 0.05, 0.6),
        }
    )


def _train(trial, client, prepared):
    """Train with the parameters of a trial; return the root mean squared error on the test data."""
    import numpy as np
    from xgboost import dask as xgb

    x_test, y_test = prepared["test"]
    params = {
        "max_depth": trial.suggest_int("max_depth", 3, 8),
        "eta": trial.suggest_float("eta", 0.1, 0.6),
        "min_child_weight": trial.suggest_int("min_child_weight", 1, 50),
        "objective": "reg:squarederror",
        "tree_method": "hist",
        "nthread": 1,
    }
    data = xgb.DaskDMatrix(client, *prepared["train"])
    output = xgb.train(client, params, data, num_boost_round=N_ROUNDS)
    predicted = xgb.predict(client, output, x_test).compute()
    return float(np.sqrt(np.mean((predicted - y_test.compute()) ** 2)))
