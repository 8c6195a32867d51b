"""The configuration of the session."""

from __future__ import annotations

import pytest

#: The configuration of the session, for the conftest.py files and modules that are imported before
#: a fixture is used. Its options are complete only after `pytest_configure`.
SESSION: dict[str, pytest.Config] = {}
