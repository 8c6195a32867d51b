"""Private attributes of Bokeh servers, and logins of Panel, that the dashboard uses.

Checked with Panel 1.9.4 and Bokeh 3.9.2.
"""

from __future__ import annotations

from argparse import ArgumentError, ArgumentParser
from collections.abc import Mapping
from typing import Any

from bokeh.server.server import BaseServer
from panel.command.serve import Serve
from tornado.web import Application

from benchkit.errors import UsageError


def login_arguments(options: Mapping[str, str]) -> dict[str, Any]:
    """Return arguments of `panel.serve` for login options of the command `panel serve`.

    In Panel 1.9.4, `panel.serve` ignores the key that encrypts tokens, so the command reads the
    options; but the command ignores the file of passwords (it reads ``config.basic_auth``, which
    returns the OAuth provider), so that goes to `panel.serve`.
    """
    options = dict(options)
    basic = {"basic_auth": options.pop("basic-auth")} if "basic-auth" in options else {}
    parser = ArgumentParser(exit_on_error=False)
    command = Serve(parser=parser)
    try:
        words = parser.parse_args([f"--{name}={value}" for name, value in options.items()])
        arguments = command.customize_kwargs(words, {})
    except (ArgumentError, ImportError, SyntaxError, ValueError) as error:
        raise UsageError(" ".join(str(error).split())) from error
    names = ("auth_provider", "cookie_path", "cookie_secret")
    return basic | {name: arguments[name] for name in names if name in arguments}


def tornado_application(server: BaseServer) -> Application:
    """Return the Tornado application of a Bokeh server.

    Bokeh has no public attribute for it; ``BaseServer.__init__`` stores it as ``_tornado``:
    https://github.com/bokeh/bokeh/blob/f701bc9d443cc398960c562e366b37bc2bc1341e/src/bokeh/server/server.py
    """
    application = getattr(server, "_tornado", None)
    if isinstance(application, Application):
        return application
    raise UsageError(
        "cannot check Host headers: this release of Bokeh has no attribute BaseServer._tornado; "
        "install bokeh 3.9"
    )
