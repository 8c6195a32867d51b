"""Private attributes of Bokeh servers that the dashboard uses.

Checked with Panel 1.9.4 and Bokeh 3.9.2.
"""

from __future__ import annotations

from bokeh.server.server import BaseServer
from tornado.web import Application

from benchkit.errors import UsageError

__all__ = ["tornado_application"]


def tornado_application(server: BaseServer) -> Application:
    """Return the Tornado application of a Bokeh server.

    Bokeh has no public attribute for it; ``BaseServer.__init__`` stores it as ``_tornado``:
    https://github.com/bokeh/bokeh/blob/f701bc9d443cc398960c562e366b37bc2bc1341e/src/bokeh/server/server.py

    Parameters
    ----------
    server : bokeh.server.server.BaseServer
        Server that `panel.serve` returned.

    Returns
    -------
    tornado.web.Application
        Application that handles all requests of the server.

    Raises
    ------
    UsageError
        This release of Bokeh has no such attribute. The server must not start then, because
        without it Host headers are not checked and other web pages could read the store.
    """
    application = getattr(server, "_tornado", None)
    if isinstance(application, Application):
        return application
    raise UsageError(
        "cannot check Host headers: this release of Bokeh has no attribute BaseServer._tornado; "
        "install bokeh 3.9"
    )
