"""`noonbell pause` and `noonbell resume`: the switch that stops every start on a server's installation."""

from __future__ import annotations

import click

from noonbell.cli.api import Remote
from noonbell.cli.output import ago, output_option, show_one, talk


@click.command("pause")
@click.option("--reason", default="", help="For those who see the banner.")
@click.option("--show", is_flag=True, help="Only show whether everything is paused.")
@output_option
def pause_command(reason: str, show: bool, output: str) -> None:
    """Let nothing start, on any node, until `noonbell resume`.

    What executes goes on, callbacks are taken, and what is published waits. Slots that pass are late when it is over: the misfire
    policy of each task decides about them.
    """
    remote = Remote.of_environment()
    if show:
        show_one(remote.get("/pause"), output, lines=_state)
        return
    answer = remote.post("/pause", {"reason": reason})
    if not answer["changed"]:
        talk("note: it was paused already, and stays as it was")
    show_one(answer, output, lines=_state)


@click.command("resume")
@output_option
def resume_command(output: str) -> None:
    """Let everything start again."""
    answer = Remote.of_environment().post("/resume")
    if not answer["changed"]:
        talk("note: nothing was paused")
    show_one(answer, output, lines=lambda answer: ["resumed"] if answer["changed"] else _state(answer))


def _state(answer: dict[str, object]) -> list[str]:
    if not answer["paused"]:
        return ["not paused"]
    since = answer["since"]
    who = f" by {answer['by']}" if answer["by"] else ""
    why = f": {answer['reason']}" if answer["reason"] else ""
    return [f"paused{who} {ago(str(since))}{why}"]
