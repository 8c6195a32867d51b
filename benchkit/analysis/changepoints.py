"""Import path of the detector for other tools; the code is in `changepoint.detect`."""

from benchkit.analysis.changepoint.detect import ChangePoint, Marks, detect, detect_many

__all__ = ["ChangePoint", "Marks", "detect", "detect_many"]
