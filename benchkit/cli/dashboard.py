"""`benchkit dashboard`: the app, on this machine."""

from __future__ import annotations

import click

from benchkit.cli.options import common

__all__ = ["dashboard"]

PORT = 5006


@click.command()
@click.option(
    "--port", default=PORT, show_default=True, type=click.IntRange(0, 65535), help="Port."
)
@click.option("--address", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--show/--no-show", default=False, help="Open a browser.")
@click.option(
    "--allow-websocket-origin",
    "origins",
    multiple=True,
    metavar="HOST:PORT",
    help="Names by which visitors may come, when not by the address itself.",
)
@click.option("--basic-auth", metavar="FILE", help="JSON file of users and passwords.")
@click.option("--cookie-secret", envvar="BENCHKIT_COOKIE_SECRET", help="Needed by --basic-auth.")
@common("store")
def dashboard(
    port: int,
    address: str,
    show: bool,
    origins: tuple[str, ...],
    basic_auth: str | None,
    cookie_secret: str | None,
    store: str | None,
) -> None:
    """Show the runs of a store in a browser; Ctrl-C ends it.

    Binds to this machine alone unless --address says otherwise.

    \b
    Example:
      benchkit dashboard --store ./benchkit-store --show
    """
    from benchkit.show.dashboard.server import serve

    serve(
        store,
        port=port,
        address=address,
        show=show,
        origins=origins,
        basic_auth=basic_auth,
        cookie_secret=cookie_secret,
        ready=lambda url: click.echo(url),
    )
