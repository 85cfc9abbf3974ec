"""`noonbell completion SHELL`: what a shell needs to complete commands, options and the names of tasks."""

from __future__ import annotations

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script: `eval "$(noonbell completion bash)"`."""
    from click.shell_completion import get_completion_class

    from noonbell.cli.root import root

    kind = get_completion_class(shell)
    if kind is None:
        raise click.BadParameter(f"{shell} is not known", param_hint="SHELL")
    click.echo(kind(root, {}, "noonbell", "_NOONBELL_COMPLETE").source())
