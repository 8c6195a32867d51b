"""`benchkit query`: ask all runs of a store by SQL."""

from __future__ import annotations

import click

from benchkit.cli.options import common
from benchkit.cli.rows import open_store, print_json, print_rows


@click.command("query")
@click.argument("sql", required=False)
@click.option("--tables", is_flag=True, help="List the tables and their columns.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
@common("limits", "quiet", "store", "json")
def query_command(
    sql: str | None,
    tables: bool,
    as_csv: bool,
    timeout_s: float,
    memory_limit: str,
    quiet: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Ask all runs by a SELECT statement of SQL.

    Tables: runs, tasks, task_groups, transfers, workers, events. Times are in s, sizes in B. The
    tables of tasks and the like are read from the runs once and cached.

    \b
    Examples:
      benchkit query "select workload, prefix, median(duration) from tasks group by all"
      benchkit query "select workload, count(*) from runs where outcome = 'failed' group by all"
      benchkit query --tables
    """
    from benchkit.cli.progress import bar
    from benchkit.store.query import SCHEMAS, query
    from benchkit.table import Table

    if tables:
        rows = [
            {"table": name, "columns": ", ".join(schema.names)} for name, schema in SCHEMAS.items()
        ]
        rows.insert(
            0, {"table": "runs", "columns": "id, workload, ...: see `benchkit list metrics`"}
        )
        print_rows(rows, as_json=as_json)
        return
    if not sql:
        raise click.UsageError("give a SELECT statement, or --tables")
    with bar("reading runs", quiet=quiet) as update_bar:
        answer = query(
            open_store(store), sql,
            progress=update_bar, timeout_s=timeout_s, memory_limit=memory_limit,
        )  # fmt: skip
    for problem in answer.attrs["problems"]:
        click.echo(f"left out: {problem}", err=True)
    if as_json:
        print_json(answer.to_dict("records"))
    elif as_csv:
        click.echo(answer.to_csv(index=False), nl=False)
    else:
        click.echo(Table.from_frame(answer).to_text() if len(answer) else "no rows")
