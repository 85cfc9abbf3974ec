"""Pages over real HTTP: asked for and posted to as a browser would."""

from __future__ import annotations

import html
import re
from typing import Any

from integration.api.serving import Api

HTML = {"accept": "text/html"}


async def get(api: Api, path: str, lang: str = "en", **more: Any) -> str:
    """The text of a page that must be there."""
    headers = {**HTML, "accept-language": lang, **more.pop("headers", {})}
    told = await api.call("GET", f"/{path}", headers=headers, **more)
    assert told.status == 200, (path, told.status, told.text[-2000:])
    return as_read(told.text)


def as_read(text: str) -> str:
    """The page's text as a browser reads it: entities resolved, and outside of <pre> and <textarea> any white space is one."""
    kept = re.split(r"(<(?:pre|textarea)\b.*?</(?:pre|textarea)>)", text, flags=re.DOTALL)
    read = (part if at % 2 else re.sub(r"\s+", " ", part) for at, part in enumerate(kept))
    return html.unescape("".join(read))


async def status_of(api: Api, path: str, **more: Any) -> int:
    return (await api.call("GET", f"/{path}", headers=HTML, allow_redirects=False, **more)).status


async def post(api: Api, path: str, data: Any = None, **headers: str) -> tuple[int, str, str]:
    """Status, where it leads to from the root, and the text."""
    sent = {"origin": api.root, **HTML, **headers}
    told = await api.call("POST", f"/{path}", data=data or {}, headers=sent, allow_redirects=False)
    return told.status, re.sub(r"^[./]*", "/", told.headers.get("location", "")), as_read(told.text)


def field(text: str, name: str) -> str:
    """The part of a form that is about one field, with its problem."""
    found = re.search(rf'<label for="f-{name}">.*?(?=<label for="f-|</form>)', text, re.DOTALL)
    assert found is not None, f"no field {name}"
    return found[0]


async def signed_in(api: Api, role: str = "admin") -> dict[str, str]:
    """The headers of a browser that somebody with that role has signed in with."""
    _, secret = await api.parts.access.create(f"a {role}", role, queues=["q"] if role == "worker" else [])
    told = await api.call(
        "POST", "//login", data={"token": secret}, headers={"origin": api.root}, allow_redirects=False
    )
    assert told.status == 303, told.text
    return {"cookie": told.headers["set-cookie"].partition(";")[0]}
