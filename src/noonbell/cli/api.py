"""`noonbell api METHOD PATH`: any call of the API, with address and token taken care of."""

from __future__ import annotations

import json
import sys

import click

from noonbell.cli.remote import Remote


@click.command("api")
@click.argument("method")
@click.argument("path")
@click.option("-d", "--data", metavar="JSON", help="The body; - reads stdin.")
def command(method: str, path: str, data: str | None) -> None:
    """Call the API: `noonbell api GET /tasks`, `noonbell api POST /tasks/1/trigger -d '{}'`."""
    text = sys.stdin.read() if data == "-" else data
    try:
        body = None if text is None else json.loads(text)
    except json.JSONDecodeError as error:
        raise click.BadParameter(f"is not JSON: {error}", param_hint="--data") from None
    answer = Remote.of_environment().call(method.upper(), f"/{path.lstrip('/')}", body)
    click.echo(answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, indent=2))
