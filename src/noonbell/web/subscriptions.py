"""Webhook subscriptions in the settings: all of them, one with its deliveries, one delivery with its request and answer, and
the form that makes or changes one. A secret that was made here is shown once, on the page that follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from noonbell.errors import AlreadyExists, InvalidArgument, InvalidState, NotFound, Sentence
from noonbell.model.access import Role
from noonbell.model.subscription import WebhookStatus
from noonbell.subscriptions.service import Subscriptions, SubscriptionWrite
from noonbell.web.context import PageContext, merged, pretty
from noonbell.web.forms import boxes_of, problems_by_box, read_boxes, sent_texts, texts_of
from noonbell.web.page import get, post
from noonbell.web.settings import mistyped, removal, section

PATH: Final = "/settings/subscriptions"
_NEW: Final = "/settings/new/subscription"
_SIZE: Final = 25


def webhooks_of(ctx: PageContext) -> Subscriptions:
    if ctx.deps.webhooks is None:
        raise InvalidState(ctx.words("webhooks.none_here"))
    return ctx.deps.webhooks


def _path(name: str) -> str:
    return f"{PATH}/{name}"


async def show_all(ctx: PageContext) -> Response:
    webhooks = ctx.deps.webhooks
    found = [] if webhooks is None else await webhooks.all()
    return section(ctx, "subscriptions", subscriptions=found, is_kept=webhooks is not None)


async def show(ctx: PageContext, *, secret: str | None = None, name: str | None = None) -> Response:
    """`secret`: it was made just now."""
    name = name or ctx.piece("name")
    subscription = await webhooks_of(ctx).get(name)
    status = ctx.query.get("status", "")
    wanted = WebhookStatus(status) if status in set(WebhookStatus) else None
    found = await webhooks_of(ctx).deliveries(name, limit=_SIZE, before=ctx.number("before", 17), status=wanted)
    return section(
        ctx,
        "subscription",
        within="subscriptions",
        subscription=subscription,
        deliveries=found,
        chosen="" if wanted is None else str(wanted),
        statuses=list(WebhookStatus),
        secret=secret,
        path=_path(name),
        older=merged(ctx.query, before=found[-1]["id"]) if len(found) == _SIZE else None,
        newest=merged(ctx.query, before=None) if "before" in ctx.query else None,
    )


async def show_delivery(ctx: PageContext) -> Response:
    name = ctx.piece("name")
    found = await webhooks_of(ctx).delivery(name, _delivery_id(ctx))
    return section(
        ctx,
        "delivery",
        within="subscriptions",
        delivery=found,
        body=pretty(found["body"]),
        response=pretty(found["response"]),
        path=f"{_path(name)}/deliveries/{found['id']}",
        name=name,
    )


def _delivery_id(ctx: PageContext) -> int:
    text = ctx.piece("delivery_id")
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise NotFound(Sentence("there is no delivery {delivery}", delivery=repr(text[:60])))
    return int(text)


# The form


async def ask_new(ctx: PageContext) -> Response:
    return _form(ctx, texts_of(SubscriptionWrite), None)


async def make(ctx: PageContext) -> Response:
    texts = sent_texts(await ctx.form())
    try:
        made = await webhooks_of(ctx).create(read_boxes(SubscriptionWrite, texts))
    except (InvalidArgument, AlreadyExists) as error:
        return _form(ctx, texts, None, error)
    ctx.subject = f"/subscriptions/{made['name']}"
    if not texts.get("secret", "").strip():
        return await show(ctx, secret=made["secret"], name=made["name"])
    return ctx.done(ctx.words("webhooks.saved", name=made["name"]), go=_path(made["name"]))


async def ask_change(ctx: PageContext) -> Response:
    there = await webhooks_of(ctx).get(ctx.piece("name"))
    return _form(ctx, texts_of(SubscriptionWrite, there), there)


async def change(ctx: PageContext) -> Response:
    name, texts = ctx.piece("name"), sent_texts(await ctx.form())
    there = await webhooks_of(ctx).get(name)
    try:
        wanted = read_boxes(SubscriptionWrite, {**texts, "name": name})
        await webhooks_of(ctx).change(name, {field: value for field, value in wanted.items() if field != "name"})
    except InvalidArgument as error:
        return _form(ctx, texts, there, error)
    ctx.subject = f"/subscriptions/{name}"
    return ctx.done(ctx.words("webhooks.saved", name=name), go=_path(name))


def _form(ctx: PageContext, texts: Mapping[str, str], there: dict[str, Any] | None, error: Any = None) -> Response:
    boxes = boxes_of(SubscriptionWrite)
    return section(
        ctx,
        "subscription_edit",
        200 if error is None else 400,
        within="subscriptions",
        boxes=boxes.values(),
        fields={name: texts.get(name, "") for name in boxes},
        there=there,
        path=_NEW if there is None else f"{_path(there['name'])}/edit",
        back=PATH if there is None else _path(there["name"]),
        problems={} if error is None else problems_by_box(error, boxes),
    )


# What can be done


async def ask_remove(ctx: PageContext, problem: str = "") -> Response:
    name = (await webhooks_of(ctx).get(ctx.piece("name")))["name"]
    return removal(
        ctx,
        name,
        f"{_path(name)}/remove",
        problem,
        within="subscriptions",
        back=_path(name),
        title=ctx.words("webhooks.remove", name=name),
        what=ctx.words("webhooks.remove_what"),
    )


async def remove(ctx: PageContext) -> Response:
    name = ctx.piece("name")
    if problem := await mistyped(ctx, name):
        return await ask_remove(ctx, problem)
    await webhooks_of(ctx).remove(name)
    ctx.subject = f"/subscriptions/{name}"
    return ctx.done(ctx.words("alerts.removed", name=name), go=PATH)


async def test(ctx: PageContext) -> Response:
    """What the other side really said."""
    name = ctx.piece("name")
    told = await webhooks_of(ctx).test(name)
    ctx.subject, ctx.details = f"/subscriptions/{name}", {"delivered": told["delivered"]}
    if not told["delivered"]:
        raise InvalidState(ctx.words("settings.not_delivered", name=name, why=told["error"]))
    return ctx.done(f"{ctx.words('settings.delivered', name=name)} HTTP {told['response_code']}", _path(name))


async def switch(ctx: PageContext) -> Response:
    name, given = ctx.piece("name"), await ctx.fields()
    await webhooks_of(ctx).change(name, {"active": given.get("active") == "on"})
    ctx.subject = f"/subscriptions/{name}"
    return ctx.done(ctx.words("webhooks.saved", name=name), go=_path(name))


async def move(ctx: PageContext) -> Response:
    name, given = ctx.piece("name"), await ctx.fields()
    await webhooks_of(ctx).move(name, {"from": given.get("place", "").strip()})
    ctx.subject, ctx.details = f"/subscriptions/{name}", {"from": given.get("place", "").strip()}
    return ctx.done(ctx.words("webhooks.moved", name=name), go=_path(name))


async def replay(ctx: PageContext) -> Response:
    name = ctx.piece("name")
    made = await webhooks_of(ctx).replay(name, _delivery_id(ctx))
    ctx.subject = f"/subscriptions/{name}/deliveries/{made['replay_of']}"
    return ctx.done(ctx.words("webhooks.replayed", event=made["event_id"]), go=_path(name))


PAGES: Final = [
    get(PATH, show_all),
    get(_NEW, ask_new, role=Role.ADMIN),
    post(_NEW, make, "create_subscription", role=Role.ADMIN),
    get(f"{PATH}/{{name}}", show),
    get(f"{PATH}/{{name}}/edit", ask_change, role=Role.ADMIN),
    post(f"{PATH}/{{name}}/edit", change, "change_subscription", role=Role.ADMIN),
    get(f"{PATH}/{{name}}/remove", ask_remove, role=Role.ADMIN),
    post(f"{PATH}/{{name}}/remove", remove, "remove_subscription", role=Role.ADMIN),
    post(f"{PATH}/{{name}}/test", test, "test_subscription", role=Role.ADMIN),
    post(f"{PATH}/{{name}}/switch", switch, "change_subscription", role=Role.ADMIN),
    post(f"{PATH}/{{name}}/replay", move, "replay_subscription", role=Role.ADMIN),
    get(f"{PATH}/{{name}}/deliveries/{{delivery_id}}", show_delivery),
    post(f"{PATH}/{{name}}/deliveries/{{delivery_id}}/replay", replay, "replay_delivery", role=Role.ADMIN),
]
