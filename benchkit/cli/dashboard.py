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
@click.option("--num-procs", default=1, show_default=True, type=click.IntRange(1),
              help="Processes that share the visitors, where they are many.")  # fmt: skip
@click.option(
    "--allow-websocket-origin",
    "origins",
    multiple=True,
    metavar="HOST:PORT",
    help="Names by which visitors may come, when not by the address itself.",
)
@click.option("--basic-auth", metavar="FILE", help="JSON file of users and passwords.")
@click.option("--cookie-secret", envvar="BENCHKIT_COOKIE_SECRET", metavar="TEXT",
              help="Signs visitors' cookies; needed by logins.")  # fmt: skip
@click.option("--oauth-provider", metavar="NAME", help="Log in by github, google, azure, okta, ...")
@click.option("--oauth-key", metavar="TEXT", help="Client id that the provider gave.")
@click.option("--oauth-secret", envvar="BENCHKIT_OAUTH_SECRET", metavar="TEXT",
              help="Its secret; better by $BENCHKIT_OAUTH_SECRET.")  # fmt: skip
@click.option("--oauth-redirect-uri", metavar="URL", help="Where the provider sends visitors back.")
@click.option("--oauth-encryption-key", envvar="BENCHKIT_OAUTH_ENCRYPTION_KEY", metavar="TEXT",
              help="Encrypts what the provider told in the cookies.")  # fmt: skip
@click.option("--oauth-user", "oauth_users", multiple=True, metavar="NAME",
              help="Login or e-mail of who may come; by default all who log in.")  # fmt: skip
@click.option("--allow-marks", is_flag=True,
              help="Let visitors write marks (exclude, accept, bankruptcy).")  # fmt: skip
@click.option("--follow", is_flag=False, flag_value="latest", metavar="[EXPERIMENT]",
              help="Begin with an experiment in progress; the one that runs.")  # fmt: skip
@common("store")
def dashboard(
    port: int,
    address: str,
    show: bool,
    num_procs: int,
    origins: tuple[str, ...],
    basic_auth: str | None,
    cookie_secret: str | None,
    oauth_users: tuple[str, ...],
    allow_marks: bool,
    follow: str | None,
    store: str | None,
    **oauth: str | None,
) -> None:
    """Show the runs of a store in a browser; Ctrl-C ends it.

    Binds to this machine alone unless --address says otherwise; others log in by --basic-auth or
    --oauth-*, which Panel handles. Nothing can be changed through it without --allow-marks.

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
    from benchkit.store.store import Store

    chosen_template()  # refused now, not on every page of a run
    if follow not in (None, "", "latest"):  # and not by a page that waits for it for ever
        follow = str(read_plan(Store(store, create=False).path, follow)["id"])
    serve(
        store,
        port=port,
        address=address,
        show=show,
        origins=origins,
        basic_auth=basic_auth,
        cookie_secret=cookie_secret,
        oauth={name.removeprefix("oauth_"): value for name, value in oauth.items() if value},
        oauth_users=oauth_users,
        allow_marks=allow_marks,
        follow=follow,
        num_procs=num_procs,
        ready=lambda url: click.echo(url),
    )
