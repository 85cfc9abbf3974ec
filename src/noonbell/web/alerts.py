"""Alerts in the settings: open alerts, deliveries, and the pages of channels and rules: one editor for both, made from the
Structs that declare their fields. A channel's secrets are written here and never shown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.responses import Response

from noonbell.alerts.channels import KINDS, OF_SOME_KINDS, AlertChannelWrite
from noonbell.alerts.service import SETTINGS, Alerts
from noonbell.clock import SECOND, Instant, rfc3339
from noonbell.errors import AlreadyExists, InvalidArgument, InvalidState
from noonbell.model.access import Role
from noonbell.model.alert import AFTER_SECONDS, Mute, RuleBody, RuleKind
from noonbell.service.secrets import MASK
from noonbell.service.translation import failure_words
from noonbell.web.context import PageContext, merged
from noonbell.web.forms import Box, boxes_of, problems_by_box, read_boxes, sent_texts, texts_of
from noonbell.web.page import PageRoute, get, post
from noonbell.web.settings import mistyped, removal, section

PATH: Final = "/settings/alerts"
_SIZE: Final = 25


def alerts_of(ctx: PageContext) -> Alerts:
    if ctx.deps.alerts is None:
        raise InvalidState(ctx.words("alerts.none_here"))
    return ctx.deps.alerts


async def show(ctx: PageContext) -> Response:
    alerts = ctx.deps.alerts
    if alerts is None:
        return section(ctx, "alerts", is_kept=False)
    channel = ctx.query.get("channel")
    deliveries = await alerts.deliveries(
        limit=_SIZE, before=ctx.number("before", 17), channel=channel, lang=ctx.words.lang
    )
    return section(
        ctx,
        "alerts",
        is_kept=True,
        raised=await alerts.open_alerts(),
        channels=await alerts.channels(),
        rules=await alerts.rules(),
        mutes=await alerts.mutes(),
        deliveries=deliveries,
        channel=channel or "",
        older=merged(ctx.query, before=deliveries[-1]["id"]) if len(deliveries) == _SIZE else None,
        newest=merged(ctx.query, before=None) if "before" in ctx.query else None,
    )


Kept = dict[str, Any]
"""A channel or a rule, as the service shows it."""


@dataclass(frozen=True, slots=True)
class Editor:
    """The pages that make, change and remove what has a name."""

    noun: str
    struct: type[msgspec.Struct]
    role: Role
    get: Callable[[Alerts, str], Awaitable[Kept]]
    create: Callable[[Alerts, Mapping[str, Any]], Awaitable[Kept]]
    put: Callable[[Alerts, str, Mapping[str, Any]], Awaitable[Kept]]
    delete: Callable[[Alerts, str], Awaitable[None]]

    async def ask_new(self, ctx: PageContext) -> Response:
        usual = texts_of(self.struct) | {"language": ctx.words.lang}
        return await self._form(ctx, usual | self._asked_kind(ctx), None)

    def _asked_kind(self, ctx: PageContext) -> dict[str, str]:
        """The kind that the address of the page names, where there is such a kind."""
        kind = ctx.query.get("kind", "")
        return {"kind": kind} if kind in self._kinds() else {}

    def _kinds(self) -> list[str]:
        return list(KINDS if self.noun == "channel" else RuleKind)

    async def make(self, ctx: PageContext) -> Response:
        texts = sent_texts(await ctx.form())
        try:
            made = await self.create(alerts_of(ctx), read_boxes(self.struct, texts))
        except (InvalidArgument, AlreadyExists) as error:
            return await self._form(ctx, texts, None, error)
        ctx.details = {"kind": made["kind"]}
        return self._done(ctx, f"alert_saved.{self.noun}", made["name"])

    async def ask_change(self, ctx: PageContext) -> Response:
        there = await self.get(alerts_of(ctx), ctx.piece("name"))
        return await self._form(ctx, texts_of(self.struct, there) | self._asked_kind(ctx), there)

    async def change(self, ctx: PageContext) -> Response:
        name, texts = ctx.piece("name"), sent_texts(await ctx.form())
        there = await self.get(alerts_of(ctx), name)
        try:
            wanted = read_boxes(self.struct, {**texts, "name": name})
            await self.put(alerts_of(ctx), name, _with_kept_secret(wanted, there, texts))
        except InvalidArgument as error:
            return await self._form(ctx, texts, there, error)
        return self._done(ctx, f"alert_saved.{self.noun}", name)

    async def ask_remove(self, ctx: PageContext, problem: str = "") -> Response:
        name = (await self.get(alerts_of(ctx), ctx.piece("name")))["name"]
        told_by = [rule["name"] for rule in await alerts_of(ctx).rules() if name in rule["channels"]]
        used_by = told_by if self.noun == "channel" else []
        return removal(
            ctx,
            name,
            f"/settings/{self.noun}s/{name}/remove",
            problem,
            title=ctx.words(f"alerts.remove_{self.noun}", name=name),
            what=ctx.words(f"alerts.remove_{self.noun}_{'used' if used_by else 'what'}", n=len(used_by)),
            used_by=used_by,
        )

    async def remove(self, ctx: PageContext) -> Response:
        name = ctx.piece("name")
        if problem := await mistyped(ctx, name):
            return await self.ask_remove(ctx, problem)
        await self.delete(alerts_of(ctx), name)
        return self._done(ctx, "alerts.removed", name)

    def _done(self, ctx: PageContext, key: str, name: str) -> Response:
        ctx.subject = f"/alerts/{self.noun}s/{name}"
        return ctx.done(ctx.words(key, name=name), go=PATH)

    async def _form(
        self, ctx: PageContext, texts: Mapping[str, str], there: Kept | None, error: Any = None
    ) -> Response:
        kind = texts.get("kind") or self._kinds()[0]
        boxes = _boxes(self.struct, self.noun, kind)
        return section(
            ctx,
            "edit",
            200 if error is None else 400,
            noun=self.noun,
            boxes=boxes.values(),
            fields={**{name: texts.get(name, "") for name in boxes}, "kind": kind},
            kinds={each: ctx.words(f"{self.noun}.{each}") for each in self._kinds()},
            known=[each["name"] for each in await alerts_of(ctx).channels()],
            there=there,
            problems={} if error is None else problems_by_box(error, boxes),
            is_declared=there is not None and there["managed_by"] == SETTINGS,
            examples=[KINDS[kind]] if self.noun == "channel" and kind in KINDS else (),
        )

    def pages(self) -> list[PageRoute]:
        new, path = f"/settings/new/{self.noun}", f"/settings/{self.noun}s/{{name}}"
        return [
            get(new, self.ask_new, role=self.role),
            post(new, self.make, f"create_alert_{self.noun}", role=self.role),
            get(path, self.ask_change, role=self.role),
            post(path, self.change, f"change_alert_{self.noun}", role=self.role),
            get(f"{path}/remove", self.ask_remove, role=self.role),
            post(f"{path}/remove", self.remove, f"remove_alert_{self.noun}", role=self.role),
        ]


_ABOUT_TASKS: Final = tuple(kind for kind in RuleKind if kind not in (RuleKind.STORE, RuleKind.SUBSCRIPTION))
_OF_RULES: Final[Mapping[str, Collection[RuleKind]]] = {
    "count": (RuleKind.FAILURES,),
    "factor": (RuleKind.SLOW,),
    "after_seconds": tuple(AFTER_SECONDS),
    "tasks": _ABOUT_TASKS,
    "labels": _ABOUT_TASKS,
}
"""Fields of a rule that not every kind has."""


def _boxes(struct: type[msgspec.Struct], noun: str, kind: str) -> dict[str, Box]:
    """The boxes of a form for one kind; those of a channel that it alone has, in the order of the kind."""
    boxes = boxes_of(struct)
    if noun == "rule":
        return {name: box for name, box in boxes.items() if kind in _OF_RULES.get(name, (kind,))}
    wanted = KINDS[kind].fields if kind in KINDS else OF_SOME_KINDS
    first = ("name", "kind", *wanted)
    rest = (name for name in boxes if name not in first and name not in OF_SOME_KINDS)
    return {name: boxes[name] for name in (*first, *rest)}


def _with_kept_secret(wanted: dict[str, Any], there: Kept, sent: Mapping[str, str]) -> dict[str, Any]:
    """A secret that is left empty stays as it is, unless it is to go, or the kind takes none."""
    kind = KINDS.get(wanted.get("kind", ""))
    keeps = there.get("secret") is not None and not sent.get("no_secret") and kind is not None and kind.credential
    return {"secret": MASK, **wanted} if keeps else wanted


async def test_channel(ctx: PageContext) -> Response:
    """What the other side really said."""
    name = ctx.piece("name")
    told = await alerts_of(ctx).test_channel(name)
    ctx.subject, ctx.details = f"/alerts/channels/{name}", {"delivered": told["delivered"]}
    code = told["response_code"]
    if not told["delivered"]:
        raise InvalidState(
            ctx.words("settings.not_delivered", name=name, why=failure_words(told["error"], told, ctx.words))
        )
    text = ctx.words("settings.delivered", name=name)
    return ctx.done(text if code is None else f"{text} HTTP {code}", PATH)


async def acknowledge(ctx: PageContext) -> Response:
    given = await ctx.fields()
    key = {name: given.get(name, "") for name in ("rule", "subject")}
    await alerts_of(ctx).acknowledge({**key, "note": given.get("note", "").strip()[:500]}, by=ctx.actor)
    ctx.subject, ctx.details = "/alerts", key
    return ctx.done(ctx.words("alerts.acknowledged"), PATH)


async def unacknowledge(ctx: PageContext) -> Response:
    given = await ctx.fields()
    key = {name: given.get(name, "") for name in ("rule", "subject")}
    await alerts_of(ctx).withdraw_acknowledgement(key)
    ctx.subject, ctx.details = "/alerts", key
    return ctx.done(ctx.words("alerts.unacknowledged"), PATH)


_MUTE_SPANS: Final = {"1h": 3_600, "4h": 14_400, "12h": 43_200, "1d": 86_400, "3d": 259_200, "7d": 604_800}
"""How long the page offers to mute, in seconds; the API takes any moment of the next 30 days."""


async def ask_mute(
    ctx: PageContext, error: InvalidArgument | None = None, sent: Mapping[str, str] | None = None
) -> Response:
    texts = {name: ctx.query.get(name, "") for name in ("rule", "tasks", "labels")} if sent is None else sent
    return section(
        ctx,
        "mute",
        200 if error is None else 400,
        fields={name: texts.get(name, "") for name in ("rule", "tasks", "labels", "span", "reason")},
        spans=list(_MUTE_SPANS),
        known=[rule["name"] for rule in await alerts_of(ctx).rules()],
        problems={} if error is None else problems_by_box(error, ("rule", "tasks", "labels", "until", "reason")),
    )


async def mute(ctx: PageContext) -> Response:
    sent = await ctx.fields()
    seconds = _MUTE_SPANS.get(sent.get("span", ""), _MUTE_SPANS["1h"])
    until = ctx.now + seconds * SECOND
    given = {name: text for name in ("rule", "reason") if (text := sent.get(name, "").strip())}
    try:
        boxes = read_boxes(Mute, {name: sent.get(name, "") for name in ("tasks", "labels")})
        made = await alerts_of(ctx).mute(
            {**given, **{name: boxes[name] for name in ("tasks", "labels")}, "until": rfc3339(Instant(until))},
            by=ctx.actor,
        )
    except InvalidArgument as error:
        return await ask_mute(ctx, error, sent)
    ctx.subject, ctx.details = "/alerts/mutes", {"until": made["until"], **given}
    return ctx.done(ctx.words("alerts.muted"), go=PATH)


async def unmute(ctx: PageContext) -> Response:
    await alerts_of(ctx).unmute(ctx.piece("mute"))
    ctx.subject = f"/alerts/mutes/{ctx.piece('mute')}"
    return ctx.done(ctx.words("alerts.unmuted"), PATH)


CHANNELS: Final = Editor(
    "channel",
    AlertChannelWrite,
    Role.ADMIN,
    Alerts.channel,
    Alerts.create_channel,
    Alerts.change_channel,
    Alerts.remove_channel,
)
RULES: Final = Editor(
    "rule", RuleBody, Role.OPERATOR, Alerts.rule, Alerts.create_rule, Alerts.change_rule, Alerts.remove_rule
)

PAGES: Final = [
    get(PATH, show),
    post("/alerts/acknowledge", acknowledge, "acknowledge_alert", role=Role.OPERATOR),
    post("/alerts/unacknowledge", unacknowledge, "unacknowledge_alert", role=Role.OPERATOR),
    get("/settings/new/mute", ask_mute, role=Role.OPERATOR),
    post("/settings/new/mute", mute, "mute_alerts", role=Role.OPERATOR),
    post("/settings/mutes/{mute}/end", unmute, "unmute_alerts", role=Role.OPERATOR),
    *CHANNELS.pages(),
    post("/settings/channels/{name}/test", test_channel, "test_alert_channel", role=Role.ADMIN),
    *RULES.pages(),
]
