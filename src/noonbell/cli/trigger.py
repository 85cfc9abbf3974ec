"""`noonbell trigger TASK`: one run now, and how it went."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from noonbell.cli.exits import EXIT_STILL_GOING, EXIT_WITHOUT_SUCCESS
from noonbell.cli.output import coloured, duration, output_option, show_one, talk
from noonbell.cli.remote import Remote, task_segment


def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from noonbell.cli.task import complete as names

    return names(ctx, param, incomplete)


@click.command("trigger")
@click.argument("task", shell_complete=complete)
@click.option("--data", metavar="JSON", help="The payload.")
@click.option(
    "--arg", "arguments", multiple=True, metavar="NAME=VALUE", help="One field of the payload; may be repeated."
)
@click.option("--body", metavar="TEXT", help="HTTP tasks: this body instead of the task's.")
@click.option("--key", metavar="KEY", help="Publish under this key: at most one run has it.")
@click.option("--delay", type=float, metavar="SECONDS", help="Not before so many seconds from now.")
@click.option("--priority", type=int, help="Higher goes first.")
@click.option("--wait", is_flag=True, help="Wait until the run has ended; its outcome is the exit code.")
@click.option("--timeout", default=300.0, metavar="SECONDS", show_default=True, help="Wait no longer than that.")
@output_option
def trigger(
    task: str,
    data: str | None,
    arguments: tuple[str, ...],
    body: str | None,
    key: str | None,
    delay: float | None,
    priority: int | None,
    wait: bool,
    timeout: float,
    output: str,
) -> int:
    """Make one run of TASK now, whatever its schedule says."""
    remote = Remote.of_environment()
    given: dict[str, Any] = {"key": key, "delay_seconds": delay, "priority": priority, "override_body": body}
    given = {name: value for name, value in given.items() if value is not None}
    payload = _payload(data, arguments)
    if payload is not None:
        given["payload"] = payload
    answer = remote.post(f"/tasks/{task_segment(task)}/trigger", given)
    if not wait:
        show_one(answer, output, name="run_id", lines=lambda answer: [f"run {answer['run_id']}"])
        return 0
    return await_run(remote, answer["run_id"], timeout, output)


command = trigger


def await_run(remote: Remote, run_id: int, timeout: float, output: str) -> int:
    """Ask until the run is final: often at first, then less."""
    began = time.monotonic()
    pause = 0.05
    while True:
        run = remote.get(f"/runs/{run_id}")
        if run["final_status"] is not None:
            break
        if time.monotonic() - began > timeout:
            talk(f"run {run_id} is still {run['status']} after {timeout:g} s; noonbell run tail {run_id} follows it")
            return EXIT_STILL_GOING
        time.sleep(pause)
        pause = min(1.0, pause * 1.5)
    show_one(run, output, name="id", lines=lambda run: [ended(run)])
    return 0 if run["final_status"] == "SUCCESS" else EXIT_WITHOUT_SUCCESS


def ended(run: dict[str, Any]) -> str:
    """One line for a run that is over."""
    good = run["final_status"] == "SUCCESS"
    parts = [f"{'✔' if good else '✖'} run {run['id']} {coloured(run['status'])} in {duration(run['duration_ms'])}"]
    if run["response_code"] is not None:
        parts.append(f"HTTP {run['response_code']}")
    if run["result"] is not None:
        parts.append(json.dumps(run["result"], ensure_ascii=False)[:200])
    if not good and run["error_message"]:
        parts.append(run["error_message"])
    if run["skip_reason"]:
        parts.append(run["skip_reason"])
    return "  ".join(parts)


def _payload(data: str | None, arguments: tuple[str, ...]) -> Any:
    from noonbell.cli.task import value_of

    payload = None if data is None else value_of(data)
    for item in arguments:
        name, equals, value = item.partition("=")
        if not equals or not (payload is None or isinstance(payload, dict)):
            raise click.BadParameter(f"is {item!r}; takes NAME=VALUE, with --data an object", param_hint="--arg")
        payload = {**(payload or {}), name: value_of(value)}
    return payload
