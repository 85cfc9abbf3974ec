"""`noonbell subscription …`: webhook subscriptions on a server."""

from __future__ import annotations

from typing import Any

import click

from noonbell.cli.api import Remote, segment
from noonbell.cli.options import confirm
from noonbell.cli.output import ago, output_option, show_list, show_one, talk
from noonbell.cli.root import EXIT_FAILED, NounGroup


def _state(one: dict[str, Any]) -> str:
    if one["disabled_at"]:
        return "disabled"
    if not one["active"]:
        return "off"
    return "failing" if one["failing_since"] else "active"


COLUMNS = {
    "name": lambda one: one["name"],
    "state": _state,
    "url": lambda one: one["url"],
    "types": lambda one: ", ".join(one["types"]) or "all",
    "behind": lambda one: str(one["behind"]),
    "waiting": lambda one: str(one["pending"]),
    "delivered": lambda one: ago(one["delivered_at"]),
}

DELIVERY_COLUMNS = {
    "id": lambda one: str(one["id"]),
    "event": lambda one: one["event_id"],
    "type": lambda one: one["type"],
    "status": lambda one: one["status"],
    "attempts": lambda one: str(one["attempts"]),
    "code": lambda one: str(one["response_code"] or "–"),
    "made": lambda one: ago(one["created_at"]),
    "error": lambda one: one["error"] or "",
}


@click.group("subscription", cls=NounGroup)
def subscription_command() -> None:
    """List, create, test, replay and remove webhook subscriptions."""


def _path(name: str) -> str:
    return f"/subscriptions/{segment(name)}"


def read_labels(pairs: tuple[str, ...]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise click.BadParameter(f"is {pair!r}; expected NAME=VALUE", param_hint="--label")
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


@subscription_command.command("list")
@output_option
def list_subscriptions(output: str) -> None:
    """List subscriptions, with the position of each."""
    show_list(Remote.of_environment().get("/subscriptions")["items"], COLUMNS, output)


@subscription_command.command("show")
@click.argument("name")
@output_option
def show(name: str, output: str) -> None:
    """Show one subscription, with its position."""
    show_one(Remote.of_environment().get(_path(name)), output)


@subscription_command.command("create")
@click.argument("name")
@click.argument("url")
@click.option(
    "--type", "types", multiple=True, metavar="TYPE", help="run, run.failed, … [every type]; may be repeated."
)
@click.option("--task", "tasks", multiple=True, metavar="NAME", help="A task's name, or a pattern; may be repeated.")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="A label that its tasks have.")
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="A queue; may be repeated.")
@click.option("--secret", metavar="SECRET", help="Secret that signs the deliveries [a new one, which is printed once].")
@output_option
def create(
    name: str,
    url: str,
    types: tuple[str, ...],
    tasks: tuple[str, ...],
    labels: tuple[str, ...],
    queues: tuple[str, ...],
    secret: str | None,
    output: str,
) -> None:
    """Create a subscription that posts events to URL from now on."""
    given: dict[str, Any] = {"name": name, "url": url, "types": types, "tasks": tasks, "queues": queues}
    given["labels"] = read_labels(labels)
    if secret is not None:
        given["secret"] = secret
    answer = Remote.of_environment().post("/subscriptions", given)
    show_one(answer, output)
    if secret is None:
        talk("note: the secret is shown only once")


@subscription_command.command("enable")
@click.argument("name")
@click.option(
    "--from", "goes_on", metavar="POSITION", help="now, oldest, the ID of an event, or a time [where it stopped]."
)
def enable(name: str, goes_on: str | None) -> None:
    """Resume deliveries, from where they stopped or from another position."""
    place = {} if goes_on is None else {"from": goes_on}
    Remote.of_environment().call("PATCH", _path(name), {"active": True, **place})
    talk(f"enabled {name}")


@subscription_command.command("disable")
@click.argument("name")
def disable(name: str) -> None:
    """Stop deliveries; the subscription keeps its position in the event stream."""
    Remote.of_environment().call("PATCH", _path(name), {"active": False})
    talk(f"disabled {name}")


@subscription_command.command("remove")
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
def remove(name: str, yes: bool) -> None:
    """Remove a subscription and its deliveries."""
    if not yes:
        confirm(f"Remove subscription {name!r} and its deliveries?", refused="nothing removed")
    Remote.of_environment().call("DELETE", _path(name))
    talk(f"removed {name}")


@subscription_command.command("test")
@click.argument("name")
@output_option
def test(name: str, output: str) -> int:
    """Post a test event now. Exit code 1: it was not delivered."""
    answer = Remote.of_environment().post(f"{_path(name)}/test")
    show_one(answer, output, name="delivery_id")
    return 0 if answer["delivered"] else EXIT_FAILED


@subscription_command.command("deliveries")
@click.argument("name")
@click.option("--status", type=click.Choice(["PENDING", "DELIVERED", "FAILED"]), help="Only with this status.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000),
    default=50,
    show_default=True,
    help="Show at most this many, newest first.",
)
@output_option
def deliveries(name: str, status: str | None, limit: int, output: str) -> None:
    """List deliveries, newest first."""
    query: dict[str, Any] = {"limit": limit, **({} if status is None else {"status": status})}
    found = Remote.of_environment().get(f"{_path(name)}/deliveries", query)["items"]
    show_list(found, DELIVERY_COLUMNS, output, name="id")


@subscription_command.command("delivery")
@click.argument("name")
@click.argument("delivery_id", type=int, metavar="ID")
@output_option
def delivery(name: str, delivery_id: int, output: str) -> None:
    """Show one delivery, with its request and response."""
    show_one(Remote.of_environment().get(f"{_path(name)}/deliveries/{delivery_id}"), output, name="id")


@subscription_command.command("replay")
@click.argument("name")
@click.argument("delivery_id", type=int, required=False, metavar="[ID]")
@click.option("--from", "goes_on", metavar="POSITION", help="oldest, the ID of an event, a time, or now.")
def replay(name: str, delivery_id: int | None, goes_on: str | None) -> None:
    """Deliver one event again, or every event from a position on."""
    if (delivery_id is None) is (goes_on is None):
        raise click.UsageError("give the ID of a delivery, or --from POSITION")
    remote = Remote.of_environment()
    if delivery_id is not None:
        made = remote.post(f"{_path(name)}/deliveries/{delivery_id}/replay")
        click.echo(made["id"])
    else:
        answer = remote.post(f"{_path(name)}/replay", {"from": goes_on})
        talk(f"{name} continues after event {answer['position']}")
