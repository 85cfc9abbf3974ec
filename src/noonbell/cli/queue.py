"""`noonbell queue …`: queues on a server; `noonbell pause` and `resume`: the switch that stops every start on its installation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from noonbell.cli.api import Named, Remote, post_for_each, segment
from noonbell.cli.options import confirm, quiet_hours, quiet_option, say_bare_spans, seconds_in, span_option
from noonbell.cli.output import (
    Cell,
    ago,
    cut,
    duration,
    fields,
    moment_text,
    output_option,
    show_list,
    show_one,
    talk,
)
from noonbell.cli.root import NounGroup, did_you_mean
from noonbell.cli.run import cleaning_options, remove_history
from noonbell.errors import NotFound

COLUMNS = {
    "name": lambda queue: queue["name"],
    "state": lambda queue: _state_of(queue),  # noqa: PLW0108 - it is defined below
    "waiting": lambda queue: str(queue["waiting"]),
    "held": lambda queue: str(queue["held"]),
    "delayed": lambda queue: str(queue["delayed"]),
    "running": lambda queue: str(queue["running"]),
    "oldest": lambda queue: ago(queue["oldest_at"]),
    "no worker for": lambda queue: ", ".join(
        f"{one['job_type'] or 'HTTP'} ({one['count']}{'+' if one.get('is_least') else ''})" for one in queue["unserved"]
    ),
}


def _state_of(queue: Mapping[str, Any]) -> str:
    """`open`, or `paused by ann: the vendor mends its API`"""
    if not queue["paused"]:
        return "open"
    pause = queue.get("pause") or {}
    who = f" by {pause['by']}" if pause.get("by") else ""
    why = f": {cut(pause['reason'], 60)}" if pause.get("reason") else ""
    return f"paused{who}{why}"


@click.group("queue", cls=NounGroup, aliases={"show": "get"})
def queue_command() -> None:
    """List, show, limit, pause, resume, quieten, drain and clean queues."""


@queue_command.command("list")
@output_option
def list_queues(output: str) -> None:
    """List queues and their contents."""
    show_list(Remote.of_environment().get("/queues")["items"], COLUMNS, output)


@queue_command.command("get")
@click.argument("name")
@output_option
def get(name: str, output: str) -> None:
    """Show one queue: why it is paused, its limits and its contents."""
    remote = Remote.of_environment()
    _note_if_unknown(remote, name)
    show_one(remote.get(f"/queues/{segment(name)}"), output, lines=_queue_lines)


def _queue_lines(queue: Mapping[str, Any]) -> list[str]:
    pause = queue.get("pause") or {}
    since = f"  {ago(pause['since'])}" if pause else ""
    rest = {key: queue[key] for key in queue if key not in ("name", "paused", "pause", "concurrency", "rate_limit")}
    return [f"{queue['name']}  {_state_of(queue)}{since}", _limits(queue), "", *fields(rest)]


@queue_command.command("depth")
@click.argument("name")
@click.option("--from", "since", metavar="TIME", help="Start of the time range, RFC 3339 [a day before --to].")
@click.option("--to", "until", metavar="TIME", help="End of the time range [now].")
@click.option(
    "--by",
    type=click.Choice(["minute", "hour", "day"]),
    default="hour",
    show_default=True,
    help="Show one row for each of these.",
)
@output_option
def depth_command(name: str, since: str | None, until: str | None, by: str, output: str) -> None:
    """Show how many runs waited in a queue, over time. A dash means that there is no sample."""
    remote = Remote.of_environment()
    asked = {"from": since, "to": until, "by": by}
    path = f"/queues/{segment(name)}/depth"
    answer = remote.get(path, {key: value for key, value in asked.items() if value is not None})
    if output in ("table", "name"):
        show_list(answer["items"], _DEPTHS, output, name="at")
    else:
        show_one(answer, output)


def _or_dash(field: str) -> Cell:
    return lambda step: "–" if step[field] is None else f"{step[field]:g}"


_DEPTHS: Final[Mapping[str, Cell]] = {
    "from": lambda step: moment_text(step["at"]),
    "waiting": _or_dash("waiting"),
    "most": _or_dash("most_waiting"),
    "longest wait": lambda step: duration(step["longest_wait_ms"]) if step["most_waiting"] else "–",
    "samples": lambda step: str(step["samples"]),
}


def _note_if_unknown(remote: Remote, name: str) -> None:
    """For what changes nothing where there is no such queue."""
    names = [queue["name"] for queue in remote.get("/queues")["items"]]
    if name not in names:
        talk(f"note: there are no runs and no workers on queue {name!r}{did_you_mean(name, names)}")


def _check_known(remote: Remote, name: str, *, is_new: bool) -> None:
    """A queue may be set before it is used. NotFound where an unknown name is near a known one: it is rather a slip."""
    names = [] if is_new else [queue["name"] for queue in remote.get("/queues")["items"]]
    if is_new or name in names:
        return
    near = did_you_mean(name, names)
    if near:
        raise NotFound(f"there is no queue {name!r}{near} To set it before it is used, add --new")
    talk(f"note: there are no runs and no workers on queue {name!r}")


_new_option = click.option(
    "--new", "is_new", is_flag=True, help="The name is meant, though no run or worker has used it."
)
_QUEUES = Named("names", lambda name: f"/queues/{segment(name)}", check=_note_if_unknown)


@queue_command.command("pause")
@click.argument("names", nargs=-1, required=True)
@click.option("--reason", default="", help="The reason, shown with the queue.")
@_new_option
def pause_queues(names: tuple[str, ...], reason: str, is_new: bool) -> None:
    """Pause queues: none of their runs starts. If a queue is already paused, a reason replaces the one before."""
    remote = Remote.of_environment()
    for name in names:
        _check_known(remote, name, is_new=is_new)
    for name in names:
        remote.post(f"{_QUEUES.address(name)}/pause", {"reason": reason} if reason else {})
        talk(f"paused {name}: {reason}" if reason else f"paused {name}")


post_for_each(queue_command, "resume", "Resume queues.", _QUEUES, lambda name, _: talk(f"resumed {name}"))


_KEPT: Final = ("rate_limit", "concurrency", "quiet", "spread_seconds")
"""What a change of a queue would take away if it left it out."""
_NONE: Final = "none"


def _rate(text: str) -> dict[str, Any] | None:
    """`100/1m`: at most 100 starts in any minute."""
    if text == _NONE:
        return None
    most, _, span = text.partition("/")
    if not most.isdecimal() or not span:
        raise click.BadParameter(f"is {text!r}; expected 100/1m, 5/1s, or none", param_hint="--rate")
    try:
        # `10/s` is what people write for 10/1s.
        return {
            "max": int(most),
            "per_seconds": seconds_in(f"1{span}" if span in ("s", "m", "h", "d") else span, is_zero_allowed=False),
        }
    except ValueError as error:
        raise click.BadParameter(f"has a span that {error}", param_hint="--rate") from None


def _limits(queue: Mapping[str, Any]) -> str:
    rate, places = queue["rate_limit"], queue["concurrency"]
    said = [] if places is None else [f"{places} at a time"]
    said += [] if rate is None else [f"{rate['max']} starts per {rate['per_seconds']:g} s"]
    return f"{queue['name']}  {', '.join(said) or 'no limit'}"


@queue_command.command("limit")
@click.argument("name")
@click.option("--concurrency", metavar="N", help="Concurrent runs, across all nodes; none: no limit.")
@click.option("--rate", metavar="MAX/SPAN", help="Most starts in any period: 100/1m, 5/1s; none: no limit.")
@_new_option
@output_option
def limit_command(name: str, concurrency: str | None, rate: str | None, is_new: bool, output: str) -> None:
    """Set limits of a queue. Limits that are not given are kept; without options, the current limits are shown."""
    changed: dict[str, Any] = {}
    if concurrency is not None:
        if concurrency != _NONE and not concurrency.isdecimal():
            raise click.BadParameter(f"is {concurrency!r}; expected a number, or none", param_hint="--concurrency")
        changed["concurrency"] = None if concurrency == _NONE else int(concurrency)
    if rate is not None:
        changed["rate_limit"] = _rate(rate)
    remote, path = Remote.of_environment(), f"/queues/{segment(name)}"
    _check_known(remote, name, is_new=is_new)
    queue = remote.get(path)
    if changed:
        queue = remote.call("PUT", path, {field: queue[field] for field in _KEPT} | changed)
    show_one(queue, output, lines=lambda queue: [_limits(queue)])


@queue_command.command("quiet")
@click.argument("name")
@quiet_option
@click.option("--tz", metavar="ZONE", help="Time zone of hours without one, such as Europe/Berlin [UTC].")
@click.option("--skip", is_flag=True, help="Skip runs that come due [hold them].")
@span_option("--spread", help="Afterwards, start held runs evenly within this time [unchanged].")
@click.option("--none", "is_none", is_flag=True, help="Remove the quiet hours.")
@_new_option
def quiet_command(
    name: str, quiet: tuple[str, ...], tz: str | None, skip: bool, spread: float | None, is_none: bool, is_new: bool
) -> None:
    """Set the quiet hours of a queue; its limits are kept."""
    if bool(quiet) is is_none:
        raise click.UsageError("give --quiet HOURS, or --none")
    of_all = ({"timezone": tz} if tz else {}) | ({"what": "skip"} if skip else {})
    hours = [{**of_all, **each} for each in quiet_hours(quiet)]
    remote, path = Remote.of_environment(), f"/queues/{segment(name)}"
    _check_known(remote, name, is_new=is_new)
    there = remote.get(path)
    kept = {field: there[field] for field in _KEPT}
    changed = kept | {"quiet": hours} | ({} if spread is None else {"spread_seconds": round(spread)})
    remote.call("PUT", path, changed)
    say_bare_spans(spread="afterwards, held runs start within")
    talk(f"{name} has no quiet hours" if is_none else f"{name} has quiet hours")


@queue_command.command("drain")
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
def drain(name: str, yes: bool) -> None:
    """Cancel all waiting runs of a queue."""
    if not yes:
        confirm(f"Cancel every waiting run of queue {name!r}?", refused="nothing canceled")
    remote = Remote.of_environment()
    _note_if_unknown(remote, name)
    answer = remote.post(f"/queues/{segment(name)}/drain")
    click.echo(f"{answer['canceled']} canceled")


@queue_command.command("clean")
@click.argument("name")
@cleaning_options
def clean(name: str, older_than: float | None, keep: int | None, yes: bool) -> None:
    """Remove the final runs of a queue: those that ended long ago, or all but the newest."""
    remove_history(f"queue {name!r}", f"/queues/{segment(name)}", older_than, keep, yes=yes)


@click.command("pause")
@click.option("--reason", default="", help="The reason, shown in the banner.")
@click.option("--show", is_flag=True, help="Only show whether everything is paused.")
@output_option
def pause_command(reason: str, show: bool, output: str) -> None:
    """Pause everything: no run starts on any node until `noonbell resume`.

    Running work continues, callbacks are accepted, and published runs wait. Slots that pass in the meantime are late:
    the misfire policy of each task decides about them.
    """
    remote = Remote.of_environment()
    if show:
        show_one(remote.get("/pause"), output, lines=_state)
        return
    answer = remote.post("/pause", {"reason": reason})
    show_one(answer, output, lines=_state)
    talk("noonbell resume ends it" if answer["changed"] else "note: it was paused already, and stays as it was")


@click.command("resume")
@output_option
def resume_command(output: str) -> None:
    """Resume everything."""
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
    return [f"everything paused{who} {ago(str(since))}{why}"]
