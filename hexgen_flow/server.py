"""The command `server`: a Redis for trying things out. Deployments run one of their own."""

import signal
import sys
from pathlib import Path

import click

from common.store.embedded import EmbeddedServer


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, show_default="the last one, or a free one", help="on 127.0.0.1"
)
def server(directory: Path, port: int) -> None:
    """Run a Redis for trying, its data in DIRECTORY, until told to stop; prints its URL (extra: embedded)."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))
    with EmbeddedServer.start(directory, port=port) as running:
        click.echo(running.url)
        running.wait()
