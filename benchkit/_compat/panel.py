"""Private attributes of Panel and Bokeh servers that the dashboard uses.

Checked with Panel 1.5 to 1.8 and Bokeh 3.6 to 3.9.
"""

from __future__ import annotations

import warnings

from bokeh.server.server import BaseServer
from tornado.web import Application

__all__ = ["tornado_application"]


def tornado_application(server: BaseServer) -> Application:
    """Return the Tornado application of a Bokeh server.

    Bokeh has no public attribute for it:
    https://github.com/bokeh/bokeh/blob/branch-3.9/src/bokeh/server/server.py

    Parameters
    ----------
    server : bokeh.server.server.BaseServer
        Server that `panel.serve` returned.

    Returns
    -------
    tornado.web.Application
        Application that handles all requests of the server. If this release of Bokeh has no
        such attribute, an application without handlers; a warning says so.
    """
    application = getattr(server, "_tornado", None)
    if isinstance(application, Application):
        return application
    warnings.warn(
        "this Bokeh release hides the server's Tornado application: Host headers are not checked",
        RuntimeWarning,
        stacklevel=2,
    )
    return Application()
