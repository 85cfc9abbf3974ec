"""`noonbell queue …`: queues on a server."""

from __future__ import annotations

import click

from noonbell.cli.api import Named, Remote, post_for_each, segment
from noonbell.cli.options import confirm
from noonbell.cli.output import ago, output_option, show_list, talk
from noonbell.cli.root import NounGroup, did_you_mean

COLUMNS = {
    "name": lambda queue: queue["name"],
    "state": lambda queue: "paused" if queue["paused"] else "open",
    "waiting": lambda queue: str(queue["waiting"]),
    "delayed": lambda queue: str(queue["delayed"]),
    "running": lambda queue: str(queue["running"]),
    "oldest": lambda queue: ago(queue["oldest_at"]),
    "no worker for": lambda queue: ", ".join(
        f"{one['job_type'] or 'HTTP'} ({one['count']})" for one in queue["unserved"]
    ),
}


@click.group("queue", cls=NounGroup)
def queue_command() -> None:
    """List, pause, resume, drain and clean queues."""


@queue_command.command("list")
@output_option
def list_queues(output: str) -> None:
    """List queues with what is in them."""
    show_list(Remote.of_environment().get("/queues")["items"], COLUMNS, output)


def _note_if_unknown(remote: Remote, name: str) -> None:
    """Any name is that of a queue, so a slip of the pen is no error."""
    names = [queue["name"] for queue in remote.get("/queues")["items"]]
    if name not in names:
        talk(f"note: no run and no worker is on queue {name!r}{did_you_mean(name, names)}")


_QUEUES = Named("names", lambda name: f"/queues/{segment(name)}", check=_note_if_unknown)
post_for_each(
    queue_command, "pause", "Let nothing start from these queues.", _QUEUES, lambda name, _: talk(f"paused {name}")
)
post_for_each(queue_command, "resume", "Let runs start again.", _QUEUES, lambda name, _: talk(f"resumed {name}"))


@queue_command.command("drain")
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def drain(name: str, yes: bool) -> None:
    """Cancel everything that waits in a queue."""
    if not yes:
        confirm(f"Cancel every waiting run of queue {name!r}?", refused="nothing canceled")
    remote = Remote.of_environment()
    _note_if_unknown(remote, name)
    answer = remote.post(f"/queues/{segment(name)}/drain")
    click.echo(f"{answer['canceled']} canceled")


@queue_command.command("clean")
@click.argument("name")
@click.option("--older-than", default=30.0, metavar="DAYS", show_default=True, help="Runs that ended longer ago.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def clean(name: str, older_than: float, yes: bool) -> None:
    """Remove the final runs of a queue."""
    if not yes:
        confirm(
            f"Remove the runs of queue {name!r} that ended over {older_than:g} days ago?", refused="nothing removed"
        )
    answer = Remote.of_environment().post(f"/queues/{segment(name)}/clean", {"older_than_days": older_than})
    click.echo(f"{answer['removed']} removed")
