"""`benchkit mcp`: answer the questions of agents about a store."""

from __future__ import annotations

import click

from benchkit.cli.options import common


@click.command("mcp")
@common("limits", "store")
def mcp_command(timeout_s: float, memory_limit: str, store: str | None) -> None:
    """Answer questions of agents about a store.

    A server of the Model Context Protocol on stdin and stdout, with read-only tools: list, run,
    compare, regressions, diagnose, limits, query. Answers have at most 10 kB, and mark text that
    comes from runs as untrusted. A question is stopped after --timeout, or when the client cancels
    it. The server ends when stdin is closed.

    \b
    Examples:
      benchkit mcp --store s3://lab-benchmarks/nightly
      claude mcp add benchkit -- benchkit mcp --store /srv/benchkit-store
    """
    from benchkit.errors import needs_extra

    with needs_extra("mcp", "mcp>=2"):
        from benchkit.cli.agents.server import StoreServer
    StoreServer(store, timeout_s=timeout_s, memory_limit=memory_limit).run("stdio")
