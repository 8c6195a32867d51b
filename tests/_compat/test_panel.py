"""The dashboard server requires a release of Bokeh with which it can check Host headers."""

from types import SimpleNamespace

import pytest
from tornado.web import Application

from benchkit._compat.panel import tornado_application
from benchkit.errors import UsageError


def test_tornado_application_returns_application_of_server():
    application = Application()

    assert tornado_application(SimpleNamespace(_tornado=application)) is application


def test_tornado_application_requires_private_attribute():
    with pytest.raises(UsageError, match="cannot check Host headers"):
        tornado_application(SimpleNamespace())
