"""Draw a series as a sparkline: a small figure in a line of text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchkit.text import escape

__all__ = ["BETTER", "WORSE", "sparkline"]

#: Colours of changes, distinguishable with any colour vision; symbols repeat the meaning.
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

    Returns
    -------
    str
        An SVG element.

    Examples
    --------
    >>> sparkline(np.array([1.0, 2.0]), label="two nights")[:4]
    '<svg'
    """
    values = np.asarray(values, float)
    measured = np.isfinite(values)
    elements: list[str] = []
    if measured.any():
        low, high = float(values[measured].min()), float(values[measured].max())
        span = max(high - low, 0.1 * abs(high)) or 1.0  # 1 % noise must not look like a step
        low -= (span - (high - low)) / 2
        step = (width - 8) / max(values.size - 1, 1)
        x = 4 + step * np.arange(values.size)
        y = height - 5 - (values - low) / span * (height - 9)
        for night, direction in changes:
            colour = WORSE if direction == worse else BETTER
            elements.append(
                f'<path d="M{x[night]:.1f} 1V{height - 2}" stroke="{colour}" stroke-width="2"/>'
            )
        edges = np.flatnonzero(np.diff(np.concatenate([[0], measured.astype(int), [0]])))
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            line = "L".join(f"{x[i]:.1f} {y[i]:.1f}" for i in range(start, stop))
            if stop - start == 1:
                line += "h.1"
            elements.append(f'<path d="M{line}" fill="none" stroke="currentColor" opacity=".75"/>')
        last = int(np.flatnonzero(measured)[-1])
        elements.append(
            f'<circle cx="{x[last]:.1f}" cy="{y[last]:.1f}" r="2.2" fill="currentColor"/>'
        )
        elements += [
            f'<path d="M{x[i] - 2.5:.1f} {height - 6}l5 5m0-5l-5 5" stroke="{WORSE}"/>'
            for i in failed
        ]
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'style="max-width: 100%" role="img" aria-label="{escape(label)}" '
        f'stroke-linecap="round" stroke-linejoin="round">{"".join(elements)}</svg>'
    )
