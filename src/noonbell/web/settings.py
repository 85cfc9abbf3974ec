"""The settings pages: general, tokens, secrets, retention, diagnostics, about. Each section has its own address."""

from __future__ import annotations

import asyncio
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from starlette.responses import Response

from noonbell.clock import SystemClock
from noonbell.errors import AlreadyExists, Forbidden, InvalidArgument, InvalidState, StoreUnavailable
from noonbell.masking import mask_addresses
from noonbell.model.access import Role
from noonbell.model.request import TaskQuery
from noonbell.model.task import Task
from noonbell.sealing import is_sealed
from noonbell.service import doctor
from noonbell.service.access import Access, labels_of, scope_of
from noonbell.service.retention import Keep
from noonbell.service.secrets import MASK, MESSAGE_URLS, credentials, masked_values
from noonbell.settings.kinds import sqlite_file
from noonbell.targets.jobs.builtin import DATA_CLEANUP
from noonbell.web.context import THEMES, Deps, PageContext
from noonbell.web.forms import problems_by_box, whole
from noonbell.web.i18n import instant_from
from noonbell.web.login import LANDINGS, landing_of
from noonbell.web.page import get, post
from noonbell.web.queues import store_to_name
from noonbell.web.recent import finding_text, findings_report

SECTIONS: Final[dict[str, tuple[str, Role]]] = {
    "general": ("/settings", Role.VIEWER),
    "tokens": ("/settings/tokens", Role.ADMIN),
    "alerts": ("/settings/alerts", Role.VIEWER),
    "subscriptions": ("/settings/subscriptions", Role.VIEWER),
    "secrets": ("/settings/secrets", Role.VIEWER),
    "retention": ("/settings/retention", Role.VIEWER),
    "diagnostics": ("/settings/diagnostics", Role.VIEWER),
    "about": ("/settings/about", Role.VIEWER),
}
"""Where each is, and who may see it."""


def section(ctx: PageContext, part: str, status: int = 200, /, *, within: str = "alerts", **view: Any) -> Response:
    """The template `settings_PART.html`; parts without a section of their own belong to the one that they are `within`."""
    shown = {each: path for each, (path, role) in SECTIONS.items() if ctx.may(role)}
    name = part if part in SECTIONS else within
    return ctx.page(f"settings_{part}.html", status, section=name, sections=shown, **view)


def removal(ctx: PageContext, name: str, path: str, problem: str, /, **told: Any) -> Response:
    """The question whether it may go, to be answered by its name."""
    status = 400 if problem else 200
    usual = {"back": "/settings/alerts", "used_by": ()}
    return section(ctx, "remove", status, name=name, path=path, problem=problem, **{**usual, **told})


async def mistyped(ctx: PageContext, name: str) -> str:
    """The problem to show if the name was not typed; empty if it was."""
    typed = (await ctx.fields()).get("typed", "").strip()
    return "" if typed == name else ctx.words("confirm.mistyped", name=name)


async def show_general(ctx: PageContext) -> Response:
    return section(
        ctx,
        "general",
        themes=THEMES,
        landing=landing_of(ctx),
        landings=[name for name in LANDINGS if name in ctx.rooms],
    )


_NOTHING: Final = {"name": "", "role": "viewer", "labels": "", "queues": "", "job_types": "", "days": "90"}
TOKENS_PATH: Final = "/settings/tokens"


async def show_tokens(
    ctx: PageContext,
    *,
    made: tuple[str, str] | None = None,
    given: Mapping[str, str] | None = None,
    problems: dict[str, str] | None = None,
) -> Response:
    """`made`: the name and the secret of a token that was made just now."""
    access = ctx.deps.access
    tokens = [] if access is None else await access.tokens()
    return section(
        ctx,
        "tokens",
        400 if problems else 200,
        tokens=sorted(tokens, key=lambda token: (is_over(token, ctx.now), -token["id"])),
        is_over=lambda token: is_over(token, ctx.now),
        made=made,
        fields={**_NOTHING, **(given or {})},
        problems=problems or {},
        roles=list(Role),
        asks=ctx.deps.asks_for_tokens,
        first=f"noonbell token create --role admin --name NAME --store {store_to_name(ctx)}",
    )


def is_over(token: Mapping[str, Any], now: int) -> bool:
    """Whether it opens nothing any more."""
    expires = token["expires_at"]
    return token["revoked_at"] is not None or (expires is not None and instant_from(expires) <= now)


async def make_token(ctx: PageContext) -> Response:
    """The page again, with the token in it: it is shown this once. None is made where no token is asked for."""
    if not ctx.deps.asks_for_tokens:
        raise Forbidden(ctx.words("settings.not_minted"))
    given = await ctx.fields()
    name = given.get("name", "").strip()
    try:
        token, secret = await _access(ctx).create(
            name,
            given.get("role", ""),
            seconds=_seconds(given),
            by=ctx.actor,
            queues=_parts(given, "queues"),
            labels=labels_of(_parts(given, "labels")),
            job_types=_parts(given, "job_types"),
        )
    except (InvalidArgument, AlreadyExists) as error:
        found = problems_by_box(error, _NOTHING, lambda name: "days" if name == "expires_in" else name)
        return await show_tokens(ctx, given={field: given.get(field, "") for field in _NOTHING}, problems=found)
    ctx.subject, ctx.details = f"/tokens/{name}", scope_of(token)
    return await show_tokens(ctx, made=(name, secret))


def _parts(given: Mapping[str, str], field: str) -> list[str]:
    return [part.strip() for part in given.get(field, "").split(",") if part.strip()]


def _seconds(given: Mapping[str, str]) -> float | None:
    text = given.get("days", "").strip()
    return whole("days", text) * 86_400.0 if text else None


async def revoke_token(ctx: PageContext) -> Response:
    name = ctx.piece("name")
    await _access(ctx).revoke(name)
    ctx.subject = f"/tokens/{name}"
    return ctx.done(ctx.words("settings.revoked", name=name), TOKENS_PATH)


def _access(ctx: PageContext) -> Access:
    if ctx.deps.access is None:
        raise InvalidState(ctx.words("settings.no_access"))
    return ctx.deps.access


_LOOKED_AT: Final = 1_000


@dataclass(frozen=True, slots=True)
class SecretHolder:
    name: str
    path: str
    names: list[str]
    """Of its secret headers, and `secret` or `url`."""
    sealed: bool | None
    """None where it is not known."""


async def show_secrets(ctx: PageContext) -> Response:
    tasks = await ctx.services.tasks.found(TaskQuery(page_size=_LOOKED_AT, sort="name"))
    channels = [] if ctx.deps.alerts is None else await ctx.deps.alerts.channels()
    webhooks = [] if ctx.deps.webhooks is None else await ctx.deps.webhooks.all()
    found = [holder for task in tasks.items if (holder := of_task(task)) is not None]
    return section(
        ctx,
        "secrets",
        is_sealing=ctx.deps.settings.secrets.key_file is not None,
        tasks=found,
        channels=[holder for channel in channels if (holder := of_channel(channel)) is not None],
        webhooks=[
            SecretHolder(each["name"], f"/settings/subscriptions/{each['name']}", ["secret", "url"], None)
            for each in webhooks
        ],
        plain=sum(holder.sealed is False for holder in found),
        looked_at=len(tasks.items) if tasks.next_cursor is not None else None,
    )


def of_task(task: Task) -> SecretHolder | None:
    shown = {
        name.removeprefix("headers."): credentials(value) if name.endswith(MESSAGE_URLS) else value
        for name, value in masked_values(task.spec).items()
    }
    values = {name: value for name, value in shown.items() if value}
    if not values:
        return None
    return SecretHolder(
        task.name, f"/tasks/{task.id}", sorted(values), all(is_sealed(value) for value in values.values())
    )


def of_channel(channel: dict[str, Any]) -> SecretHolder | None:
    """Told by its masks: the service opens what it can before it shows it."""
    names = [name for name, value in channel["headers"].items() if value == MASK]
    names += [name for name in ("secret", "url") if MASK in (channel[name] or "")]
    return SecretHolder(channel["name"], f"/settings/channels/{channel['name']}", names, None) if names else None


TABLES: Final = (
    *("tasks", "runs", "attempts", "bodies", "callbacks", "run_log", "events", "dropped", "workers"),
    *("run_slots", "live_keys"),
)
_DELIVERIES_DAYS: Final = 30
_MOST: Final = 100


async def show_retention(ctx: PageContext) -> Response:
    settings = ctx.deps.settings
    keep = Keep(settings.jobs.history_retention_days)
    counts = await ctx.services.store.counts()
    own = await ctx.services.tasks.found(TaskQuery(meta_key="retention_", page_size=_MOST, sort="name"))
    cleaning = await ctx.services.tasks.found(TaskQuery(job_type=DATA_CLEANUP, include_system=True, page_size=10))
    return section(
        ctx,
        "retention",
        days=keep.days,
        event_hours=settings.events.retention / 3_600,
        delivery_days=_DELIVERIES_DAYS,
        counts={name: counts[name] for name in TABLES if name in counts},
        size=await asyncio.to_thread(file_size, settings.store.url),
        own=[(task.id, task.name, keep.for_task(task.spec.meta)) for task in own.items],
        cleaning=cleaning.items,
    )


def file_size(url: str) -> int | None:
    """Bytes that SQLite takes, its journal included; None for other stores."""
    path = sqlite_file(url)
    if path is None:
        return None
    return sum(file.stat().st_size for file in (Path(path), Path(f"{path}-wal")) if file.exists())


async def show_diagnostics(ctx: PageContext) -> Response:
    findings = await look(ctx)
    return section(
        ctx,
        "diagnostics",
        findings=[finding_text(finding, ctx.words) for finding in findings],
        report=findings_report(findings, ctx.deps.settings.store.url.partition(":")[0]),
        ill=sum(finding.mark is doctor.CheckStatus.ILL for finding in findings),
        care=sum(finding.mark is doctor.CheckStatus.CARE for finding in findings),
    )


async def look(ctx: PageContext) -> list[doctor.Finding]:
    deps = ctx.deps
    return [
        *doctor.look_at_settings(deps.settings, (), asks_for_tokens=deps.asks_for_tokens, exposed=deps.exposed),
        *await asyncio.to_thread(doctor.look_at_machine, doctor.folder_of(deps.settings.store.url)),
        doctor.look_at_node(deps.health()),
        *await _store(deps),
    ]


async def _store(deps: Deps) -> list[doctor.Finding]:
    try:
        return [finding async for finding in doctor.look_at_store(deps.services.store, SystemClock().now)]
    except StoreUnavailable as error:
        return [doctor.Finding("store", doctor.CheckStatus.ILL, error.message)]


_NAME = re.compile(r"[A-Za-z0-9._-]+")


async def show_about(ctx: PageContext) -> Response:
    url, health = ctx.deps.settings.store.url, ctx.deps.health()
    return section(
        ctx,
        "about",
        python=platform.python_version(),
        store_kind=url.partition(":")[0],
        store_url=mask_addresses(url) if ctx.may("admin") else None,
        is_well=bool(health.get("ok", True)),
        role=role_of(ctx.deps, health),
        workers=health.get("workers") or [],
        libraries=libraries(),
    )


def role_of(deps: Deps, health: Mapping[str, Any]) -> list[str]:
    """What this node does beside answering."""
    does = ["serves"]
    if deps.settings.scheduler.enabled and ("planner" not in health or health["planner"] is not None):
        does.append("plans")
    if health.get("workers"):
        does.append("works")
    return does


@cache
def libraries() -> list[tuple[str, str, str]]:
    """Name, version and licence of what it stands on, as the packages themselves say it."""
    found: list[tuple[str, str, str]] = []
    for name in sorted({*_required()}, key=str.lower):
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # an extra that is not installed
        found.append((package.metadata["Name"], package.version, _licence(package.metadata)))
    return found


def _required() -> Iterator[str]:
    for requirement in metadata.requires("noonbell") or []:
        match = _NAME.match(requirement)
        if match is not None and match[0] != "noonbell":  # an extra of all extras names itself
            yield match[0]


def _licence(package: Any) -> str:
    expression = package.get("License-Expression")
    if expression:
        return str(expression)
    classified = [
        str(each).rpartition(":: ")[2] for each in package.get_all("Classifier") or [] if "License ::" in each
    ]
    plain = str(package.get("License") or "").strip().partition("\n")[0]
    return ", ".join(classified) or plain[:60] or "–"


PAGES: Final = [
    get("/settings", show_general),
    get(TOKENS_PATH, show_tokens, role=Role.ADMIN),
    post(TOKENS_PATH, make_token, "create_token", role=Role.ADMIN),
    post(f"{TOKENS_PATH}/{{name}}/revoke", revoke_token, "revoke_token", role=Role.ADMIN),
    get("/settings/secrets", show_secrets),
    get("/settings/retention", show_retention),
    get("/settings/diagnostics", show_diagnostics),
    get("/settings/about", show_about),
]
