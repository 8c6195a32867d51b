"""`benchkit dashboard`: serve the dashboard on this machine."""

from __future__ import annotations

import os
from typing import Any

import click

from benchkit.cli.options import common
from benchkit.cli.rows import open_store
from benchkit.interruption import interrupted_code

PORT = 5006
#: Login options of `panel serve`, which reads them: metavar and help. Panel also reads its
#: environment variables, such as PANEL_OAUTH_KEY.
_PANEL_OPTIONS = {
    "basic-auth": ("FILE", "JSON file of users and passwords."),
    "cookie-secret": ("TEXT", "Secret that signs cookies; required for logins."),
    "cookie-path": ("PATH", "Path of the host that cookies are valid for."),
    "oauth-provider": ("NAME", "Login by github, google, azure, okta, ..."),
    "oauth-key": ("TEXT", "Client id from the provider."),
    "oauth-secret": ("TEXT", "Client secret; better set $BENCHKIT_OAUTH_SECRET."),
    "oauth-redirect-uri": ("URL", "URL to return to after the login."),
    "oauth-extra-params": ("DICT", "Further parameters of the provider."),
    "oauth-jwt-user": ("TEXT", "Key of the user in the provider's token."),
    "oauth-expiry-days": ("N", "Days after which a login ends."),
    "oauth-encryption-key": ("TEXT", "Key that encrypts the tokens in cookies."),
}
_SECRETS = ("cookie-secret", "oauth-secret", "oauth-encryption-key")


def _login_options(command: Any) -> Any:
    """Add the login options of Panel to a command."""
    for name, (metavar, text) in reversed(_PANEL_OPTIONS.items()):
        variable = f"BENCHKIT_{name.replace('-', '_').upper()}" if name in _SECRETS else None
        option = click.option(f"--{name}", metavar=metavar, envvar=variable, help=text)
        command = option(command)
    return command


@click.command()
@click.option(
    "--port",
    default=PORT,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on.",
)
@click.option("--address", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--show/--no-show", default=False, help="Open the dashboard in a browser.")
@click.option("--num-procs", default=1, show_default=True, type=click.IntRange(1),
              help="Number of server processes, for many visitors.")  # fmt: skip
@click.option(
    "--allow-websocket-origin",
    "origins",
    multiple=True,
    metavar="HOST:PORT",
    help="Accept requests for this host name; repeatable.",
)
@click.option("--prefix", default="", metavar="PATH",
              help="Path of the dashboard on its host, behind a proxy.")  # fmt: skip
@click.option("--use-xheaders", is_flag=True,
              help="Trust the proxy's X-Real-Ip and X-Forwarded-Proto.")  # fmt: skip
@_login_options
@click.option("--oauth-user", "oauth_users", multiple=True, metavar="NAME",
              help="Login or e-mail of a permitted user; default: all users.")  # fmt: skip
@click.option("--allow-marks", is_flag=True,
              help="Permit writing marks (exclude, accept, bankruptcy).")  # fmt: skip
@click.option("--insecure", is_flag=True,
              help="Permit a public --address without a login.")  # fmt: skip
@click.option("--follow", is_flag=False, flag_value="latest", metavar="[EXPERIMENT]",
              help="Open a running experiment; default: the latest.")  # fmt: skip
@common("store")
def dashboard(store: str | None, follow: str | None, **options: Any) -> None:
    """Show the runs of a store in a browser.

    Ctrl-C stops it. Only this machine can connect unless --address is given. A public address needs
    a login of Panel (--basic-auth, --oauth-*, --cookie-*) or --insecure. The dashboard is read-only
    unless --allow-marks is given.

    \b
    Examples:
      benchkit dashboard --store ./benchkit-store --show
      benchkit dashboard --follow
      benchkit dashboard --address 0.0.0.0 --allow-websocket-origin bench.example.org:5006 \\
          --basic-auth users.json --cookie-secret "$(openssl rand -hex 32)"
      benchkit dashboard --prefix bench --use-xheaders --allow-websocket-origin bench.example.org
    """
    from benchkit.experiment.run.plan import read_plan
    from benchkit.show.dashboard.server import serve
    from benchkit.show.grafana import chosen_template

    chosen_template()  # reject an invalid template before serving
    if follow not in (None, "", "latest"):  # reject an unknown experiment too
        follow = str(read_plan(open_store(store), follow)["id"])
    given = {name: options.pop(name.replace("-", "_")) for name in _PANEL_OPTIONS}
    login = {name: value for name, value in given.items() if value}
    try:
        serve(store, follow=follow, login=login, ready=click.echo, **options)
    except KeyboardInterrupt:
        click.echo("stopped", err=True)
        # Without a shutdown of the interpreter: it can wait for ever for the thread that fills the
        # cache, if that imports a module.
        os._exit(interrupted_code())
