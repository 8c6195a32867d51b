"""`benchkit dashboard`: serve the dashboard on this machine."""

from __future__ import annotations

from typing import Any

import click

from benchkit.cli.options import common
from benchkit.cli.rows import open_store

__all__ = ["dashboard"]

PORT = 5006


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
@click.option("--basic-auth", metavar="FILE", help="JSON file of users and passwords.")
@click.option("--cookie-secret", envvar="BENCHKIT_COOKIE_SECRET", metavar="TEXT",
              help="Secret that signs cookies; required for logins.")  # fmt: skip
@click.option("--oauth-provider", metavar="NAME", help="Login by github, google, azure, okta, ...")
@click.option("--oauth-key", metavar="TEXT", help="Client id from the provider.")
@click.option("--oauth-secret", envvar="BENCHKIT_OAUTH_SECRET", metavar="TEXT",
              help="Client secret; better set $BENCHKIT_OAUTH_SECRET.")  # fmt: skip
@click.option("--oauth-redirect-uri", metavar="URL", help="URL to return to after the login.")
@click.option("--oauth-encryption-key", envvar="BENCHKIT_OAUTH_ENCRYPTION_KEY", metavar="TEXT",
              help="Key that encrypts the tokens in cookies.")  # fmt: skip
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
    a login of Panel (--basic-auth, --oauth-*) or --insecure. The dashboard is read-only unless
    --allow-marks is given.

    \b
    Examples:
      benchkit dashboard --store ./benchkit-store --show
      benchkit dashboard --follow
      benchkit dashboard --address 0.0.0.0 --allow-websocket-origin bench.example.org:5006 \\
          --basic-auth users.json --cookie-secret "$(openssl rand -hex 32)"
    """
    from benchkit.experiment.run.plan import read_plan
    from benchkit.show.dashboard.server import serve
    from benchkit.show.grafana.link import chosen_template

    chosen_template()  # reject an invalid template before serving
    if follow not in (None, "", "latest"):  # reject an unknown experiment too
        follow = str(read_plan(open_store(store), follow)["id"])
    names = [name for name in options if name.startswith("oauth_") and name != "oauth_users"]
    oauth = {name.removeprefix("oauth_"): options.pop(name) for name in names}
    serve(store, follow=follow, oauth=oauth, ready=click.echo, **options)
