"""Kubernetes CronJobs, from their YAML: one document, several, or a list as `kubectl get cronjobs -A -o yaml` prints it.

A container is a program in an image, and Noonbell starts no containers: a container that is one call of curl becomes an HTTP
task; others become COMMAND tasks or jobs where that is asked for, and the report says that the image is left behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import click

from noonbell.cli.importers.cron_text import cron_of, interval_of
from noonbell.cli.importers.programs import Program, ProgramOptions, program_options, target_of
from noonbell.cli.importers.report import Findings, Imported, Refused, finish, import_options, read_entries
from noonbell.cli.importers.sources import text_from
from noonbell.when.zones import find

_POLICIES: Final[dict[str, dict[str, Any]]] = {
    "Allow": {"max_concurrency": None},
    "Forbid": {"overlap_action": "SKIP"},
    "Replace": {"overlap_action": "CANCEL_PREV"},
}
_SHELLS: Final = {"sh": "/bin/sh", "bash": "/bin/bash", "ash": "/bin/ash"}
"""Images have them in their path; a COMMAND task names its program by its place."""
_OF_JOBS: Final = {
    *("template", "backoffLimit", "activeDeadlineSeconds", "completions", "parallelism", "completionMode"),
    *("ttlSecondsAfterFinished", "podReplacementPolicy", "suspend"),
}
_OF_PODS: Final = {
    *("containers", "initContainers", "activeDeadlineSeconds", "restartPolicy", "terminationGracePeriodSeconds"),
    *("schedulerName", "dnsPolicy", "enableServiceLinks", "imagePullSecrets", "automountServiceAccountToken"),
}
_OF_CONTAINERS: Final = {
    *("name", "image", "command", "args", "env", "workingDir", "imagePullPolicy"),
    *("terminationMessagePath", "terminationMessagePolicy"),
}
"""What is carried over, and what says nothing of a command outside of a cluster; the defaults that `kubectl get` prints are among it."""
_BACKOFF: Final = {"strategy": "exponential", "initial_delay": 10, "max_delay": 360}
"""As its Job controller waits."""


def read_kubernetes(text: str, zone: str, options: ProgramOptions) -> Iterator[Imported]:
    """ValueError says what is wrong with the YAML. `zone`: of jobs that name none, that of the cluster's controller."""
    from noonbell import yaml_text

    found = [each for document in yaml_text.read_all(text) for each in _flat(document)]
    return read_entries(
        (f"document {number}", _said(each), partial(_task, each, zone, options)) for number, each in enumerate(found, 1)
    )


def _flat(document: Any) -> list[Any]:
    if isinstance(document, Mapping) and str(document.get("kind", "")).endswith("List"):
        return list(document.get("items") or [])
    return [] if document is None else [document]


def _said(document: Any) -> str:
    if not isinstance(document, Mapping):
        return str(document)[:200]
    names = _map(document, "metadata")
    return f"{document.get('kind')} {names.get('namespace', 'default')}/{names.get('name')}"


def _map(value: Any, *path: str) -> Mapping[str, Any]:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _task(document: Any, cluster_zone: str, options: ProgramOptions, found: Findings) -> dict[str, Any] | None:
    if not isinstance(document, Mapping) or document.get("kind") != "CronJob":
        found.notes.append("is not a CronJob, and was left out")
        return None
    names, spec = _map(document, "metadata"), _map(document, "spec")
    if not names.get("name") or not spec.get("schedule"):
        raise Refused("has no metadata.name, or no spec.schedule")
    zone = find(str(spec.get("timeZone") or cluster_zone)).name
    if "timeZone" not in spec:
        found.notes.append(f"names no timeZone; {zone} is taken (--tz), which the cluster's controller has to be in")
    job = _map(spec, "jobTemplate", "spec")
    task: dict[str, Any] = {
        "name": ".".join(str(part) for part in (names.get("namespace"), names["name"]) if part),
        "timezone": zone,
        **_schedule(str(spec["schedule"]), zone),
        **_target(job, options, found),
        **_policies(spec, job, found),
    }
    found.say_time_limit(task)
    labels = {str(name): str(value) for name, value in _map(names, "labels").items()}
    if labels:
        task["labels"] = labels
    if spec.get("suspend") is True:
        task["status"] = "DISABLED"
    return task


def _schedule(text: str, zone: str) -> dict[str, Any]:
    text = text.strip()
    if text.startswith(("TZ=", "CRON_TZ=")):
        raise Refused("has its time zone in `schedule`; move it to `timeZone`")
    if text.startswith("@every"):
        from noonbell.settings.kinds import seconds_of

        try:
            return {"schedule": interval_of(seconds_of(text.removeprefix("@every").strip()))}
        except ValueError:
            raise Refused(f"{text!r} is not known") from None
    return cron_of(text, "standard", zone)


def _target(job: Mapping[str, Any], options: ProgramOptions, found: Findings) -> dict[str, Any]:
    pod = _map(job, "template", "spec")
    containers = pod.get("containers")
    if not isinstance(containers, list) or len(containers) != 1 or not isinstance(containers[0], Mapping):
        raise Refused("has not exactly one container; a flow has several steps")
    if pod.get("initContainers"):
        raise Refused("has initContainers; a flow has several steps")
    for name in ("completions", "parallelism"):
        if job.get(name, 1) not in (1, None):
            raise Refused(f"has {name} {job[name]}; `fanout` or a flow's `foreach` does that")
    container = containers[0]
    words = [str(word) for word in (*(container.get("command") or []), *(container.get("args") or []))]
    image = str(container.get("image", ""))
    if not container.get("command"):
        entry = "curl" if image.partition("@")[0].partition(":")[0].endswith("curl") else None
        if entry is None:
            raise Refused(f"names no command; the image {image} knows what it runs, and this file does not")
        words = [entry, *words]
    env = _env(container, found)
    words = [_filled(word, env, container) for word in words]
    words[0] = _SHELLS.get(words[0], words[0])
    program = Program(
        words,
        expanded=words[2] if len(words) == 3 and words[0] in _SHELLS.values() and words[1] in ("-c", "-ec") else "",
        env=env,
        cwd=container.get("workingDir"),
        more={"image": image},
    )
    target = target_of(program, options, found)
    if "command" in target or "job_type" in target:
        found.changes.append(f"runs on the worker's machine, not in the image {image}")
        for part, carried in ((job, _OF_JOBS), (pod, _OF_PODS), (container, _OF_CONTAINERS)):
            found.changes += [f"{name} is left out" for name, value in part.items() if value and name not in carried]
    return target


def _env(container: Mapping[str, Any], found: Findings) -> dict[str, str]:
    env: dict[str, str] = {}
    for each in container.get("env") or []:
        if isinstance(each, Mapping) and isinstance(each.get("value"), str):
            env[str(each.get("name"))] = each["value"]
        elif isinstance(each, Mapping):
            found.changes.append(f"{each.get('name')} comes from elsewhere in the cluster, and is left out")
    return env


def _filled(word: str, env: Mapping[str, str], container: Mapping[str, Any]) -> str:
    """`$(NAME)` is the value of a variable of the container, and itself where there is none; `$$(NAME)` is `$(NAME)`."""
    names = {str(each.get("name")) for each in container.get("env") or [] if isinstance(each, Mapping)}

    def value(found: re.Match[str]) -> str:
        if found[1]:
            return found[0][1:]
        if found[2] in names - env.keys() or (found[2] not in names and container.get("envFrom")):
            raise Refused(f"uses $({found[2]}), which comes from elsewhere in the cluster; write it out")
        return env.get(found[2], found[0])

    return re.sub(r"(\$)?\$\(([A-Za-z_][\w.-]*)\)", value, word)


def _policies(spec: Mapping[str, Any], job: Mapping[str, Any], found: Findings) -> dict[str, Any]:
    policy = str(spec.get("concurrencyPolicy") or "Allow")
    if policy not in _POLICIES:
        raise Refused(f"concurrencyPolicy {policy!r} is unknown; expected {', '.join(_POLICIES)}")
    fields: dict[str, Any] = {**_POLICIES[policy], "misfire_policy": "FIRE_ONCE"}
    deadline = spec.get("startingDeadlineSeconds")
    if isinstance(deadline, int):
        fields["misfire_policy"] = "SKIP"
        fields["misfire_grace_seconds"] = deadline
    retries = job.get("backoffLimit", 6)
    if isinstance(retries, int):
        fields["retry_policy"] = {"max_retries": retries, **_BACKOFF}
    for_all = job.get("activeDeadlineSeconds")
    limits = [
        each for each in (for_all, _map(job, "template", "spec").get("activeDeadlineSeconds")) if isinstance(each, int)
    ]
    if limits:
        fields["timeout_seconds"] = min(limits)
    if isinstance(for_all, int) and retries:
        found.changes.append(f"activeDeadlineSeconds {for_all} held for all attempts; timeout_seconds is for each")
    for name in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        if name in spec:
            found.notes.append(f"{name} is left out: runs are kept as the installation is set")
    return fields


@click.command("kubernetes")
@click.argument("source")
@click.option("--tz", default="UTC", show_default=True, metavar="ZONE", help="The zone of jobs without a timeZone.")
@program_options
@import_options
def kubernetes_command(source: str, tz: str, job_type: str | None, commands: bool, **given: Any) -> int:
    """Kubernetes CronJobs: a YAML file, or - for stdin, as `kubectl get cronjobs -A -o yaml` prints them."""
    options, zone = ProgramOptions.of(job_type, commands=commands), find(tz).name
    try:
        return finish(read_kubernetes(text_from(source), zone, options), "kubernetes", **given)
    except ValueError as error:
        raise click.BadParameter(f"{source} is not YAML: {error}", param_hint="SOURCE") from None
