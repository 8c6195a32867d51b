"""Options of verdicts and of the detection of changes that a person may set, with their defaults.

Other limits of the analysis are named where they are used.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class VerdictOptions:
    """Options of the comparison of two sets of runs."""

    # Confidence of intervals. Of the rows that a report lists as changed, a share of 1 - level may
    # be false.
    level: float = 0.95
    # Largest change that counts as no change. Smaller changes of a level also come from memory
    # layout and placement.
    same: float = 0.05
    # Probability of detecting a change by the last block below which an adaptive experiment stops a
    # test. With 0.45 a tenth of the blocks is saved, and .62 of the changes are found instead of
    # .65.
    min_power: float = 0.35


@dataclass(frozen=True)
class DetectionOptions:
    """Options of the detection of changes of level in nightly series."""

    # Smallest lasting change that is reported, as logarithm of a ratio: 0.03 is 3 %. A change that
    # has lasted for at most five nights must be half as large again.
    min_change: float = 0.03
    # Largest probability, on a night, that noise like that of the reference causes an alarm.
    max_chance: float = 0.0003
    # Distance of the last night from the reference, in robust standard deviations of its noise,
    # with which the series is suspect. One night opens no regression; it is measured again.
    suspect_units: float = 6.0


#: Defaults, which all commands and pages use.
VERDICTS, DETECTION = VerdictOptions(), DetectionOptions()
