"""Draw a series as a sparkline, in the height of a line of text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchkit.show.escape import escape

__all__ = ["BETTER", "WORSE", "sparkline"]

#: Red and blue, distinguishable with any colour vision; words and symbols repeat the meaning.
WORSE, BETTER = "#ee6677", "#4477aa"


def sparkline(
    values: NDArray[np.float64],
    changes: Sequence[tuple[int, int]] = (),
    *,
    worse: int = 1,
    failed: Sequence[int] = (),
    label: str = "",
    width: int = 130,
    height: int = 26,
) -> str:
    """Return a series as a small SVG in the colour of the surrounding text.

    Parameters
    ----------
    values : ndarray, shape (nights,)
        Values by night; NaN (not measured) interrupts the line.
    changes : sequence of (int, int)
        Night and direction (1 or -1) of each change of level.
    worse : {1, -1, 0}
        The direction that is worse.
    failed : sequence of int
        Nights without a result, drawn as crosses at the bottom.
    label : str
        Text for screen readers.
    width, height : int
        Size in pixels.

    Examples
    --------
    >>> sparkline(np.array([1.0, 2.0]), label="two nights")[:4]
    '<svg'
    """
    values = np.asarray(values, float)
    known = np.isfinite(values)
    inside: list[str] = []
    if known.any():
        low, high = float(values[known].min()), float(values[known].max())
        room = max(high - low, 0.1 * abs(high)) or 1.0  # 1 % noise must not look like a step
        low -= (room - (high - low)) / 2
        step = (width - 8) / max(values.size - 1, 1)
        x = 4 + step * np.arange(values.size)
        y = height - 5 - (values - low) / room * (height - 9)
        for night, direction in changes:
            colour = WORSE if direction == worse else BETTER
            at = x[night]
            inside.append(
                f'<path d="M{at:.1f} 1V{height - 2}" stroke="{colour}" stroke-width="2"/>'
            )
        edges = np.flatnonzero(np.diff(np.concatenate([[0], known.astype(int), [0]])))
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            line = "L".join(f"{x[i]:.1f} {y[i]:.1f}" for i in range(start, stop))
            if stop - start == 1:
                line += "h.1"
            inside.append(f'<path d="M{line}" fill="none" stroke="currentColor" opacity=".75"/>')
        last = int(np.flatnonzero(known)[-1])
        inside.append(
            f'<circle cx="{x[last]:.1f}" cy="{y[last]:.1f}" r="2.2" fill="currentColor"/>'
        )
        inside += [
            f'<path d="M{x[i] - 2.5:.1f} {height - 6}l5 5m0-5l-5 5" stroke="{WORSE}"/>'
            for i in failed
        ]
    return (
        f'<svg width="{width}" height="{height}" role="img" aria-label="{escape(label)}" '
        f'stroke-linecap="round" stroke-linejoin="round">{"".join(inside)}</svg>'
    )
