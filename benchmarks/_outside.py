"""Take this folder off the path: one of its scripts has the name of a standard module."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != HERE]
