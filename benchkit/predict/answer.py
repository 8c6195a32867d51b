"""What a prediction answers: durations with intervals, as both engines return them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from benchkit.errors import UsageError
from benchkit.formatting import format_quantity
from benchkit.measure.engines import DASK
from benchkit.predict.workflow import Workflow
from benchkit.simulation.model import ClusterShape
from benchkit.store.run import Run
from benchkit.table import Table

#: Largest error of the replay of the run itself, as a ratio, above which nothing is predicted.
MAX_ERROR = 0.3
#: Smallest half-width of an interval: what the same run repeated would differ by.
MIN_REACH = 0.05
#: Half-width, as a logarithm, that holds 90 % of predictions of another shape of the cluster
#: (`benchmarks/whatif.py`). Tasks that compute were measured up to twice the threads.
SHAPE_REACH = 0.15
#: Half-width, as a logarithm, if other processes disturbed the run: predictions from runs on a
#: machine with a load of 20 were 16 to 30 % off.
DISTURBED_REACH = 0.3
SIMULATED = "the run is simulated itself"
DISTURBED = "other processes disturbed the run: intervals are wide"


@dataclass(frozen=True)
class Prediction:
    """The duration that a changed run would have."""

    change: str  # The change, as options of `benchkit whatif`
    seconds: float  # seconds, low, high: Predicted duration in s and its interval
    low: float
    high: float
    ratio: float | None  # Of the predicted duration to the measured one; None: nothing was measured
    more: dict[str, Any] = field(default_factory=dict)  # Other values by name, such as `workers`


@dataclass(frozen=True)
class Base:
    """The run from which an engine predicts, and how well it replays it."""

    duration: float  # Measured duration in s
    replayed: float  # The same by the engine, without a change
    shape: ClusterShape  # The run's cluster
    computing: float = 0.0  # Share of the tasks' seconds in which they use a processor
    notes: tuple[str, ...] = ()  # What limits the prediction
    price: float | None = None  # Of a worker for a second, if it is in the run

    @classmethod
    def of(cls, run: Run, workflow: Workflow, replayed: float, computing: float) -> Base:
        """Return the base of predictions, or refuse what its engine replays too badly."""
        duration = run.metrics["duration"]
        disturbed = "disturbed" in run.quality()["kind"].to_list()
        notes = (*[DISTURBED] * disturbed, *[SIMULATED] * run.simulated)
        if (engine := run.tree.attrs.get("engine", DASK)) != DASK:
            notes += (f"the tasks of engine {engine} are placed as Dask's scheduler does",)
        price = None
        if run.metrics.get("worker_seconds"):
            price = run.metrics.get("cost", np.nan) / run.metrics["worker_seconds"]
        base = cls(duration, replayed, workflow.shape, computing, notes, price)
        if abs(base.error) > MAX_ERROR:
            raise UsageError(
                f"run {run.id[:13]}: the replay of the run itself takes "
                f"{format_quantity(replayed, 's')} instead of {format_quantity(duration, 's')}: "
                "the model does not hold for it"
            )
        return base

    @property
    def error(self) -> float:
        """Relative error of the replay."""
        return self.replayed / self.duration - 1

    def predict(
        self, change: str, shape: ClusterShape, seconds: Sequence[float], reach: float = 0.0
    ) -> Prediction:
        """Return a prediction from the lowest, the likely and the highest replayed duration."""
        scale = self.duration / self.replayed
        reach = max(
            reach, MIN_REACH, abs(np.log(scale)), DISTURBED_REACH * (DISTURBED in self.notes)
        )
        threads = [each.workers * each.threads for each in (shape, self.shape)]
        if (shape.workers, shape.threads) != (self.shape.workers, self.shape.threads):
            n_doublings = abs(np.log2(threads[0] / threads[1]))
            reach = max(reach, SHAPE_REACH * max(1.0, n_doublings) ** self.computing)
        low, middle, high = (float(value * scale) for value in seconds)
        return Prediction(
            change,
            middle,
            float(low * np.exp(-reach)),
            float(high * np.exp(reach)),
            middle / self.duration,
            self.more(shape, middle),
        )

    def more(self, shape: ClusterShape, seconds: float) -> dict[str, Any]:
        """Return the size of a cluster, and what a duration costs there."""
        worker_s = shape.workers * seconds
        cost = {} if self.price is None or np.isnan(self.price) else {"cost": self.price * worker_s}
        size = {"workers": shape.workers, "threads": shape.threads}
        return {**size, "worker_seconds": worker_s, **cost}


@dataclass(frozen=True, eq=False)
class Answer:
    """Predictions for changes of one run or graph."""

    predictions: list[Prediction]  # One per change
    run_id: str = ""  # The run; empty: a synthetic graph
    duration: float | None = None  # Its duration in s
    # Error of the replay of the run itself, as a share of its duration; predictions are corrected
    # by it.
    error: float | None = None
    note: str = ""  # What was not recorded and makes intervals wide, or limits the duration
    runs: list[Run] = field(default_factory=list)  # Simulated runs
    disturbed: tuple[str, ...] = ()  # That other processes slowed the run

    def to_records(self) -> list[dict[str, Any]]:
        """Return a flat object per change, for ``--json``."""
        common = {
            "run": self.run_id,
            "measured": self.duration,
            "replay_error": self.error,
            "note": self.note,
            "disturbed": " ".join(self.disturbed),
        }
        records = [{**common, **vars(each), **each.more} for each in self.predictions]
        return [{name: row[name] for name in row if name != "more"} for row in records]

    @property
    def table(self) -> pd.DataFrame:
        """The records as a table."""
        return pd.DataFrame(self.to_records())

    def to_table(self) -> Table:
        """Return the predictions as a table."""
        return Table(
            [
                {
                    "change": each.change,
                    "duration": format_quantity(each.seconds, "s"),
                    "interval": " to ".join(format_quantity(v, "s") for v in (each.low, each.high)),
                    **({} if each.ratio is None else {"ratio": f"{each.ratio:.2f} x"}),
                    **{
                        title: show(each.more[name])
                        for name, (title, show) in _SHOWN.items()
                        if name in each.more
                    },
                }
                for each in self.predictions
            ]
        )

    @property
    def sentence(self) -> str:
        """Measured duration and the error of the replay, in one line."""
        parts = [self.note] if self.note else []
        if self.duration is not None:
            parts.insert(
                0,
                f"measured {format_quantity(self.duration, 's')}; the replay of the run itself is "
                f"off by {self.error:+.1%}, and the intervals contain that error",
            )
        return "; ".join(parts)

    def __repr__(self) -> str:
        return "\n".join([*self.disturbed, self.to_table().to_text(), self.sentence])

    def _repr_html_(self) -> str:
        above = "".join(f"<p>{text}</p>" for text in self.disturbed)
        return f"{above}{self.to_table().to_html()}<p>{self.sentence}</p>"


#: Further value of a prediction -> title of its column, and how it is shown.
_SHOWN: dict[str, tuple[str, Any]] = {
    "worker_seconds": ("worker time", lambda value: format_quantity(value, "s")),
    "cost": ("cost", lambda value: f"${value:.3g}"),
    "transfer_bytes": ("transferred", lambda value: format_quantity(value, "B")),
    "memory_peak": ("peak memory", lambda value: format_quantity(value, "B")),
    "n_steals": ("steals", lambda value: f"{value:.0f}"),
    "scheduler": ("scheduler busy", lambda value: f"{value:.0%}"),
}
