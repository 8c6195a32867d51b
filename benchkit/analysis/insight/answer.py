"""Predictions of a changed run, as a table, text and records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchkit.formatting import format_quantity
from benchkit.table import Table

__all__ = ["Answer", "Prediction"]


@dataclass(frozen=True)
class Prediction:
    """The duration that a changed run would have."""

    change: str  # The change, as options of `benchkit whatif`
    seconds: float  # seconds, low, high: Predicted duration in s and its interval
    low: float
    high: float
    ratio: float  # Of the predicted duration to the measured one


@dataclass(frozen=True, eq=False)
class Answer:
    """Predictions for changes of one run."""

    run_id: str  # The run
    duration: float  # Measured duration in s
    # Error of the replay of the run itself, as a share of its duration; predictions are
    # corrected by it.
    error: float
    predictions: list[Prediction]  # One per change
    note: str = ""  # What was not recorded, and makes intervals wide

    def to_records(self) -> list[dict[str, Any]]:
        """Return a flat object per change, for ``--json``."""
        common = {
            "run": self.run_id,
            "measured": self.duration,
            "replay_error": self.error,
            "note": self.note,
        }
        return [{**common, **vars(each)} for each in self.predictions]

    def to_table(self) -> Table:
        """Return the predictions as a table."""
        return Table(
            [
                {
                    "change": each.change,
                    "duration": format_quantity(each.seconds, "s"),
                    "interval": " to ".join(format_quantity(v, "s") for v in (each.low, each.high)),
                    "ratio": f"{each.ratio:.2f} x",
                }
                for each in self.predictions
            ]
        )

    @property
    def sentence(self) -> str:
        """Measured duration and the error of the replay, in one line."""
        return (
            f"measured {format_quantity(self.duration, 's')}; the replay of the run itself is "
            f"off by {self.error:+.1%}, and the intervals contain that error"
            f"{self.note and '; '}{self.note}"
        )

    def __repr__(self) -> str:
        return f"{self.to_table().to_text()}\n{self.sentence}"

    def _repr_html_(self) -> str:
        return f"{self.to_table().to_html()}<p>{self.sentence}</p>"
