"""`noonbell alert …`: open alerts, mutes and tests of channels on a server."""

from __future__ import annotations

from typing import Any

import click

from noonbell.cli.api import Remote, segment
from noonbell.cli.options import span_option
from noonbell.cli.output import ago, failure_said, moment_text, output_option, show_list, talk, terminal_language
from noonbell.cli.root import EXIT_FAILED, NounGroup
from noonbell.cli.subscription import read_labels
from noonbell.clock import SECOND, Instant, SystemClock, rfc3339


def _state(alert: dict[str, Any]) -> str:
    if alert["muted_until"]:
        return f"muted until {moment_text(alert['muted_until'])}"
    if alert["acknowledged_at"]:
        return f"acknowledged by {alert['acknowledged_by'] or 'a user'}"
    return "open"


def _said(alert: dict[str, Any]) -> str:
    """What is wrong, in the language of the terminal."""
    if terminal_language() == "en":
        return str(alert["message"])
    from noonbell.alerts.wording import said_in_words
    from noonbell.service.translation import Translator

    words = Translator(terminal_language())
    return said_in_words(alert["code"], alert["facts"], alert["message"], words)


COLUMNS = {
    "rule": lambda alert: alert["rule"],
    "subject": lambda alert: alert["subject"],
    "task": lambda alert: alert["task_name"] or "",
    "since": lambda alert: ago(alert["since"]),
    "count": lambda alert: str(alert["count"]),
    "state": _state,
    "message": _said,
}
MUTE_COLUMNS = {
    "id": lambda mute: str(mute["id"]),
    "rule": lambda mute: mute["rule"] or "every rule",
    "tasks": lambda mute: ", ".join(mute["tasks"]) or "all",
    "labels": lambda mute: ", ".join(f"{name}={value}" for name, value in mute["labels"].items()),
    "until": lambda mute: ago(mute["until"]),
    "by": lambda mute: mute["by"] or "",
    "reason": lambda mute: mute["reason"],
}


def _why(sent: dict[str, Any]) -> str:
    """Why a message has not arrived, in the language of the terminal."""
    return failure_said({"error_message": sent["error"], "error_details": {"said": sent["said"]}})


DELIVERY_COLUMNS = {
    "id": lambda sent: str(sent["id"]),
    "channel": lambda sent: sent["channel"],
    "alert": lambda sent: sent["title"] or f"{sent['rule']} {sent['subject']}",
    "status": lambda sent: sent["status"],
    "attempts": lambda sent: str(sent["attempts"]),
    "code": lambda sent: str(sent["response_code"] or "–"),
    "created": lambda sent: ago(sent["created_at"]),
    "error": _why,
}


@click.group("alert", cls=NounGroup)
def alert_command() -> None:
    """List, acknowledge and mute alerts; test channels and list deliveries."""


@alert_command.command("list")
@output_option
def list_alerts(output: str) -> None:
    """List open alerts."""
    show_list(Remote.of_environment().get("/alerts")["items"], COLUMNS, output)


@alert_command.command("ack")
@click.argument("rule")
@click.argument("subject")
@click.option("--note", default="", help="A note for others who see the alert.")
@click.option("--withdraw", is_flag=True, help="Withdraw the acknowledgement.")
def acknowledge(rule: str, subject: str, note: str, withdraw: bool) -> None:
    """Acknowledge an open alert, so that it is not repeated while it lasts. `alert list` shows its RULE and SUBJECT."""
    remote, key = Remote.of_environment(), {"rule": rule, "subject": subject}
    if withdraw:
        remote.post("/alerts/unacknowledge", key)
        talk(f"withdrew the acknowledgement of {rule} {subject}")
    else:
        remote.post("/alerts/acknowledge", {**key, "note": note})
        talk(f"acknowledged {rule} {subject}")


@alert_command.command("mutes")
@output_option
def list_mutes(output: str) -> None:
    """List mutes."""
    show_list(Remote.of_environment().get("/alerts/mutes")["items"], MUTE_COLUMNS, output)


@alert_command.command("mute")
@span_option("--for", "seconds", required=True, is_zero_allowed=False, help="For how long, such as 2h.")
@click.option("--rule", help="Alerts of this rule [of every rule].")
@click.option("--task", "tasks", multiple=True, metavar="NAME", help="Alerts about these tasks; * and ? are wildcards.")
@click.option(
    "--label", "labels", multiple=True, metavar="NAME=VALUE", help="Alerts about tasks with all of these labels."
)
@click.option("--reason", default="", help="The reason, shown with the mute.")
def mute(seconds: float, rule: str | None, tasks: tuple[str, ...], labels: tuple[str, ...], reason: str) -> None:
    """Send no notifications of alerts for a while. They are still opened and shown."""
    until = Instant(SystemClock().now() + round(seconds * SECOND))
    given = {
        "rule": rule,
        "tasks": list(tasks),
        "labels": read_labels(labels),
        "reason": reason,
        "until": rfc3339(until),
    }
    made = Remote.of_environment().post("/alerts/mutes", given)
    click.echo(f"{made['id']} until {moment_text(made['until'])}")


@alert_command.command("unmute")
@click.argument("mute_id")
def unmute(mute_id: str) -> None:
    """End a mute, by its ID."""
    Remote.of_environment().call("DELETE", f"/alerts/mutes/{segment(mute_id)}")
    talk(f"ended mute {mute_id}")


@alert_command.command("test")
@click.argument("channel")
@click.pass_context
def test_channel(ctx: click.Context, channel: str) -> None:
    """Send a test message to a channel."""
    answer = Remote.of_environment().post(f"/alerts/channels/{segment(channel)}/test")
    if not answer["delivered"]:
        talk(f"not delivered: {_why(answer)}")
        ctx.exit(EXIT_FAILED)
    talk(f"delivered to {channel}")


@alert_command.command("deliveries")
@click.option("--channel", help="Only to this channel [every channel].")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000),
    default=50,
    show_default=True,
    help="Show at most this many, newest first.",
)
@click.option("--before", type=int, metavar="ID", help="Only those before the one with this ID.")
@output_option
def deliveries(channel: str | None, limit: int, before: int | None, output: str) -> None:
    """List the notifications that were sent and their results, newest first."""
    given = {"limit": limit, "channel": channel, "before": before}
    query = {name: value for name, value in given.items() if value is not None}
    show_list(Remote.of_environment().get("/alerts/deliveries", query)["items"], DELIVERY_COLUMNS, output, name="id")
