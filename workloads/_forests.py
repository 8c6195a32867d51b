"""Trials of a classifier on handwritten digits: random parameters and their score."""

from __future__ import annotations


def random_forests(count, seed):
    """Return this many random sets of parameters of random forests."""
    import numpy as np

    rng = np.random.default_rng(seed)
    return [
        {
            "n_estimators": int(rng.integers(3, 15)),
            "max_depth": int(rng.integers(2, 12)),
            "max_features": float(rng.uniform(0.05, 0.6)),
        }
        for _ in range(count)
    ]


def forest_score(params):
    """Return the accuracy of a forest by threefold cross-validation; it is deterministic."""
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import cross_val_score

    forest = RandomForestClassifier(**params, random_state=0, n_jobs=1)
    return float(cross_val_score(forest, *load_digits(return_X_y=True), cv=3).mean())
