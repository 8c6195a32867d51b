"""Machine-learning workloads: preparation, training, independent trials."""

from __future__ import annotations

import re
import tarfile

import _recipes.archives  # noqa: F401  (declares the datasets)
from _forests import forest_score, random_forests
from _regression import regression
from _sizes import MOST_THREADS, in_steps, rideshare

from benchkit.measure import dataset, expect, workload

XGBOOST_ROUNDS = 5
WORD = re.compile(rb"matplotlib", re.IGNORECASE)
#: Trips longer than this times the third quartile are dropped.
OUTLIER = 2.5


@workload(
    tags=["ml", "cpu", "transfer", "ci", "nightly"],
    requires=["numpy", "pandas", "xgboost", "dask.array"],
    deadline_s=180,
    metrics={"rmse": "1"},
)
def xgboost_train(client, scale, seed, prepared):
    """Train boosted trees on data that is persisted on the workers, then predict the test data.

    Stresses handing data over to a library that opens its own network between the workers, and
    placing one task on each of them at once.

    Scale: 0.01 x cluster memory, linear; 20 features, 4 chunks per thread; 5 rounds.
    About 1 s on 2 x 1 x 1 GiB.
    Check: there is a prediction for each row of the test data; about 10 000 of them equal local
    predictions; the error of predictions of the training data equals the last one in the log of the
    training; it is below that of the mean.
    """
    from xgboost import dask as xgb

    train, test = prepared["train"], prepared["test"]
    data = xgb.DaskDMatrix(client, *train)
    params = {"max_depth": 6, "eta": 0.3, "min_child_weight": 30, "nthread": 1,
              "objective": "reg:squarederror", "tree_method": "hist"}  # fmt: skip
    output = xgb.train(
        client, params, data, num_boost_round=XGBOOST_ROUNDS, evals=[(data, "train")]
    )
    return {
        "booster": output["booster"],
        "log": output["history"]["train"]["rmse"],
        "predicted": xgb.predict(client, output, test[0]).compute(),
        "predicted_train": xgb.predict(client, output, train[0]).compute(),
    }


@xgboost_train.prepare
def _(client, scale, seed):
    return regression(scale, seed)


@xgboost_train.check
def _(result, prepared):
    import numpy as np
    import xgboost

    (_, y_train), (x_test, y_test) = prepared["train"], prepared["test"]
    y_train, y_test = y_train.compute(), y_test.compute()
    expect(len(result["predicted"]), equals=len(y_test), what="predictions")
    expect(len(result["log"]), equals=XGBOOST_ROUNDS, what="rounds in the log")
    on_train = float(np.sqrt(np.mean((result["predicted_train"] - y_train) ** 2)))
    expect(on_train, close_to=result["log"][-1], rtol=1e-3, what="error on the training data")
    some = slice(None, None, max(1, len(y_test) // 10_000))
    here = result["booster"].predict(xgboost.DMatrix(x_test[some].compute()))
    expect(result["predicted"][some], close_to=here, rtol=1e-5, what="predictions of some rows")
    rmse = float(np.sqrt(np.mean((result["predicted"] - y_test) ** 2)))
    expect(rmse, at_most=0.8 * float(y_test.std()), what="error on the test data")
    return {"rmse": rmse}


@workload(
    tags=["ml", "io", "join", "ci", "nightly"],
    requires=["numpy", "pandas", "pyarrow", "dask.dataframe"],
    max_threads=MOST_THREADS,
    version=3,
    deadline_s=180,
)
def preprocess(prepared, scale):
    """Compute features of for-hire trips: times, cleaned fees, boroughs, categories.

    Month, weekday and hour of the pickup; a flag for missing values; fees converted from strings;
    outliers dropped; boroughs of both ends merged in; strings converted to categories known in all
    partitions. Stresses a realistic preparation: files of different lengths, repartitioned before
    and after, a quantile, merges with a small table, and categories, which need another pass.

    Scale: 0.05 x cluster memory x fraction, at 100 bytes a trip, in 10 files per thread of very
    different lengths; partitions are 100 MB at reference memory.
    About 4 s on 2 x 1 x 1 GiB, plus 2 s once to make the data.
    Check: rows, sums and counts by borough, by pandas from the same files.
    """
    import dask.dataframe as dd

    size = int(scale.chunk("100 MB"))
    # Persist first, as in df.repartition_uneven.
    frame = dd.read_parquet(prepared.files("trips")).repartition(partition_size=size).persist()
    frame = frame.map_partitions(_clean, meta=_clean(frame._meta)).dropna(subset=["trip_time"])
    limit = OUTLIER * frame["trip_time"].quantile(0.75).compute()
    frame = frame[frame["trip_time"] < limit]
    zones = _zones(prepared)
    for side in ("PU", "DO"):
        named = zones.rename(columns={"zone": f"{side}LocationID", "borough": f"{side}_borough"})
        frame = frame.merge(named, on=f"{side}LocationID", how="left")
    frame["route"] = frame["PU_borough"].astype(str) + "-" + frame["DO_borough"].astype(str)
    names = ["license", "PU_borough", "DO_borough", "route", "month", "weekday", "hour"]
    frame = frame.astype({name: "category" for name in names}).persist()
    frame = frame.categorize(columns=names).repartition(partition_size=size).persist()
    routes = frame.groupby("route", observed=True)["trip_miles"].agg(["count", "sum"]).compute()
    return {
        "limit": float(limit),
        "rows": len(frame),
        "fees": float(frame["airport_fee"].sum().compute()),
        "missing": int(frame["on_scene_missing"].sum().compute()),
        "routes": routes,
        "known": bool(frame["route"].cat.known),
    }


@preprocess.prepare
def _(scale):
    return rideshare(scale)


@preprocess.check
def _(result, prepared):
    import pandas as pd

    files = prepared.files("trips", here=True)
    frame = _clean(pd.concat(map(pd.read_parquet, files), ignore_index=True))
    # The quantile of Dask is an estimate if partitions differ in length (wrong by 10 % on a tiny
    # cluster): check its rank, then use its value.
    below = float((frame["trip_time"] < result["limit"] / OUTLIER).mean())
    expect(below, close_to=0.75, rtol=0, atol=0.08, what="rank of the third quartile")
    frame = frame[frame["trip_time"] < result["limit"]]
    boroughs = _zones(prepared).set_index("zone")["borough"]
    route = (
        frame["PULocationID"].map(boroughs).astype(str)
        + "-"
        + frame["DOLocationID"].map(boroughs).astype(str)
    )
    wanted = frame["trip_miles"].groupby(route).agg(["count", "sum"]).sort_index()
    routes = result["routes"]
    routes = routes.set_axis(routes.index.astype(str)).sort_index()
    expect(result["rows"], equals=len(frame), what="rows")
    expect(result["fees"], close_to=float(frame["airport_fee"].sum()), rtol=1e-9, what="fees")
    expect(result["missing"], equals=int(frame["on_scene_missing"].sum()), what="rows with a gap")
    expect(list(routes.index), equals=list(wanted.index), what="routes")
    expect(routes["count"].to_numpy(), equals=wanted["count"].to_numpy(), what="trips by route")
    expect(routes["sum"].to_numpy(), close_to=wanted["sum"].to_numpy(), rtol=1e-9, what="miles")
    expect(result["known"], equals=True, what="the categories are known")


@workload(
    tags=["ml", "cpu", "coordination", "ci", "nightly"],
    requires=["numpy", "sklearn"],
    metrics={"best_score": "1"},
)
def hpo_random_search(client, scale, seed):
    """Try random parameters of a classifier, one task per trial, and record the scores.

    Each trial is a threefold cross-validation on handwritten digits, and puts its score into a
    queue on the scheduler, as into the storage of a study. Stresses many small tasks that hold the
    GIL for part of the time, and several clients of one shared object.

    Scale: 20 trials per thread x fraction.
    About 5 s on 2 x 1 x 1 GiB.
    Check: the queue received each trial once, with the score that its task returned; the best score
    is reproduced locally, and is far above chance.
    """
    from distributed import Queue

    study = Queue(client=client)
    trials = _trials(scale, seed)
    futures = client.map(_try, range(len(trials)), trials, study=study.name, pure=False)
    scores = client.gather(futures)
    reports = study.get(batch=True)
    study.close()
    return {"scores": scores, "reports": sorted(tuple(each) for each in reports)}


@hpo_random_search.check
def _(result, scale, seed):
    trials, scores = _trials(scale, seed), result["scores"]
    expect(len(scores), equals=len(trials), what="trials")
    reports = [list(each) for each in result["reports"]]
    expect(
        reports, equals=[[i, score] for i, score in enumerate(scores)], what="scores in the queue"
    )
    best = max(range(len(scores)), key=scores.__getitem__)
    expect(
        scores[best], close_to=forest_score(trials[best]), rtol=1e-9, what="best score, done again"
    )
    expect(scores[best], at_least=0.7, at_most=1.0, what="best score")
    return {"best_score": scores[best]}


@workload(tags=["ml", "io", "cpu", "ci", "nightly"], max_threads=MOST_THREADS)
def embarrassingly_parallel(client, prepared):
    """Count the files that contain a word in monthly archives, one task per archive.

    Stresses little of Dask: tasks are long, similar and independent, and results are tiny. Visible
    are the start of tasks, and work that holds the GIL next to the event loop of the worker.

    Scale: 12 archives for each GiB of cluster memory x fraction, in steps of 1, 2, 5, of 40 files
    of 50 kB. About 1 s on 2 x 1 x 1 GiB, plus 1 s once to make the data.
    Check: the count of every month, the first month with any, and the months with most and fewest,
    from the manifest of the dataset.
    """
    counts = dict(client.gather(client.map(_count_in_tar, prepared.files("tarballs"), pure=False)))
    months = sorted(counts)
    return {
        "counts": counts,
        "first": next((month for month in months if counts[month][0]), None),
        "most": max(months, key=lambda month: counts[month][0]),
        "fewest": min(months, key=lambda month: counts[month][0]),
    }


@embarrassingly_parallel.prepare
def _(scale):
    files = int(in_steps(max(5, scale.linear(1) * 12 / 2**30)))
    return dataset("tarballs", files=files)


@embarrassingly_parallel.check
def _(result, prepared):
    known = prepared.manifest["known"]
    wanted = known["counts"]
    months = sorted(wanted)
    got = {month: hits for month, (hits, _) in result["counts"].items()}
    expect(sorted(got), equals=months, what="months")
    for month in months:
        expect(got[month], equals=wanted[month], what=f"files of {month} with the word")
        expect(result["counts"][month][1], equals=known["blobs"], what=f"files of {month}")
    first = next((month for month in months if wanted[month]), None)
    expect(str(result["first"]), equals=str(first), what="first month with any")
    expect(result["most"], equals=max(months, key=wanted.__getitem__), what="month with most")
    expect(result["fewest"], equals=min(months, key=wanted.__getitem__), what="month with fewest")


def _count_in_tar(path):
    """Return the month of an archive, and the numbers of files with the word and of all files."""
    hits = total = 0
    month = ""
    import fsspec

    with fsspec.open(path) as file, tarfile.open(fileobj=file) as tar:
        for info in tar:
            month = info.name.split("/")[0]
            total += 1
            hits += WORD.search(tar.extractfile(info).read()) is not None
    return month, (hits, total)


def _trials(scale, seed):
    return random_forests(max(6, round(20 * scale.threads * scale.fraction)), seed)


def _try(number, params, *, study):
    from distributed import Queue

    score = forest_score(params)
    Queue(study).put((number, score))
    return score


def _zones(prepared):
    """Return the number of each zone, and its group of boroughs as ``borough``."""
    import pandas as pd

    zones = pd.read_parquet(prepared.files("zones", here=True)[0])
    return zones[["zone", "group"]].rename(columns={"group": "borough"})


def _clean(frame):
    import pandas as pd

    pickup = frame["pickup"]
    fee = frame["airport_fee"].replace({"None": "0"})
    return frame.assign(
        month=pickup.dt.month,
        weekday=pickup.dt.day_of_week,
        hour=pickup.dt.hour,
        on_scene_missing=frame["on_scene"].isna(),
        airport_fee=pd.to_numeric(fee).astype("f8"),
    ).drop(columns=["pickup", "on_scene"])
