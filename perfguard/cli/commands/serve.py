"""`perfguard serve`: pages and a JSON API over the history."""

from __future__ import annotations

import click

from perfguard.cli.declaring import flag
from perfguard.cli.options import load
from perfguard.errors import UsageError
from perfguard.history.project_names import project_name
from perfguard.units import printable


@click.command("serve")
@click.option("--address", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 is all of them.")
@click.option("--port", type=click.IntRange(1, 65535), default=8420, show_default=True, help="Port to listen on.")
@flag("--require-token", help="Let only those read who have a token; `perfguard db token add` does.")
def serve_command(address: str, port: int, *, require_token: bool) -> None:
    """Serve pages over the recorded runs: changes to look at, series, comparisons, the fleet.

    What the pages show is also there as JSON; /api/openapi.json describes it. Reading changes nothing. `perfguard
    history push` adds runs, with a token. There is no TLS: put a proxy in front where others than this machine read.
    """
    try:
        import uvicorn

        from perfguard.service.app import create_app, host_names_for
        from perfguard.service.shared import Settings
    except ModuleNotFoundError as error:
        raise UsageError(
            f"serving needs {error.name}, which is not installed: pip install 'perfguard[serve]'"
        ) from None
    from perfguard.history.database import is_off
    from perfguard.history.reading import history_of
    from perfguard.runner.suites import has_benchmark

    loaded = load({}, keys=())
    if is_off(loaded.config.database):
        raise UsageError("there is nothing to serve: database is off")
    with history_of(loaded) as database:
        names = host_names_for(address)
        settings = Settings(
            project=project_name(loaded),
            needs_token=require_token,
            host_names=names,
            has_benchmark=has_benchmark(loaded),
        )
        shown = f"[{address}]" if ":" in address else address
        config = uvicorn.Config(
            create_app(database, settings),
            host=address,
            port=port,
            log_level="warning",
            access_log=False,
            lifespan="on",
        )
        try:
            listening = config.bind_socket()
        except SystemExit as error:  # uvicorn has said why it cannot listen
            raise UsageError(f"cannot listen on {shown}:{port}; choose another --port") from error
        click.echo(f"http://{shown}:{port}/ serves {printable(database.name)}; Ctrl-C ends it", err=True)
        if not names and not require_token:
            click.echo("! everyone who reaches this address can read; --require-token asks them for a token", err=True)
        uvicorn.Server(config).run(sockets=[listening])
