"""The page `/docs`: the description of the API for people. It has no script and loads nothing.

The words around the description are in the reader's language; the description itself is in English. Addresses are relative,
so the page is the same under every prefix.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from html import escape
from typing import Any, Final

import msgspec

from noonbell.service.translation import Translator

_STYLE: Final = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 18%, transparent); }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
:is(p, td, span) > code { padding: .05rem .25rem; border-radius: .2rem; background: color-mix(in srgb, currentColor 9%, transparent); }
pre { overflow-x: auto; padding: .75rem; border: 1px solid var(--line); border-radius: .4rem; }
details { border-top: 1px solid var(--line); padding: .4rem 0; }
summary { cursor: pointer; display: flex; gap: .75rem; align-items: baseline; flex-wrap: wrap; }
.method { font-weight: 600; min-width: 4rem; }
.said { opacity: .75; }
table { border-collapse: collapse; }
td { padding: .15rem .75rem .15rem 0; vertical-align: top; }
"""
_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The content security policy that the page is sent with."""
_MARKED: Final = re.compile(r"`([^`]+)`|\*\*(.+?)\*\*")


def page(document: dict[str, Any], words: Translator) -> str:
    return "".join(_page_html(document, words))


def marked(text: str) -> str:
    """Text of the description as HTML: what is between backticks is code, what is between two asterisks on each side is bold."""
    found, end = [], 0
    for match in _MARKED.finditer(text):
        found.append(escape(text[end : match.start()]))
        code, bold = match.groups()
        found.append(f"<code>{escape(code)}</code>" if code is not None else f"<b>{marked(bold)}</b>")
        end = match.end()
    return "".join([*found, escape(text[end:])])


def _page_html(document: dict[str, Any], words: Translator) -> Iterator[str]:
    lang = "zh-CN" if words.lang == "zh" else words.lang
    yield f'<!doctype html><html lang="{lang}"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>Noonbell API</title><style>{_STYLE}</style></head><body>"
    yield f'<nav><a href="./">{escape(words("docs.back"))}</a></nav><main><h1>Noonbell API</h1>'
    yield f"<p>{escape(words('docs.version', version=document['info']['version']))} "
    yield f'{escape(words("docs.programs"))} <a href="openapi.json">/openapi.json</a></p><div lang="en">'
    for tag in document["tags"]:
        yield f"<h2>{escape(tag['name'])}</h2><p class=said>{marked(tag['description'])}</p>"
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if tag["name"] in operation["tags"]:
                    yield from _operation_html(path, method, operation)
    yield "</div></main></body></html>"


def _operation_html(path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"<details id={escape(operation['operationId'])}><summary><span class=method>{method.upper()}</span>"
    yield f"<code>{escape(path)}</code><span class=said>{marked(operation['summary'])}</span></summary>"
    if "description" in operation:
        yield f"<p>{marked(operation['description'])}</p>"
    if "parameters" in operation:
        yield "<table>"
        for each in operation["parameters"]:
            yield f"<tr><td><code>{escape(each['name'])}</code><td>{each['in']}<td>{marked(each['description'])}"
        yield "</table>"
    if "requestBody" in operation:
        yield "<p>Body</p>" + _json_html(operation["requestBody"]["content"]["application/json"]["example"])
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            (content,) = response["content"].values()
            yield f"<p>Answer {status}</p>" + _json_html(content["example"])
    errors = [status for status in operation["responses"] if not status.startswith("2")]
    yield f"<p class=said>Errors: {', '.join(errors)}</p></details>"


def _json_html(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return f"<pre><code>{escape(text)}</code></pre>"
