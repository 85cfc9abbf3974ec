"""The page at `/docs`: the description as HTML. No script, nothing from anywhere else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from html import escape
from typing import Any, Final

import msgspec
from starlette.responses import HTMLResponse, Response

_STYLE: Final = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 18%, transparent); }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { overflow-x: auto; padding: .75rem; border: 1px solid var(--line); border-radius: .4rem; }
details { border-top: 1px solid var(--line); padding: .4rem 0; }
summary { cursor: pointer; display: flex; gap: .75rem; align-items: baseline; flex-wrap: wrap; }
.method { font-weight: 600; min-width: 4rem; }
.said { opacity: .75; }
table { border-collapse: collapse; }
td { padding: .15rem .75rem .15rem 0; vertical-align: top; }
"""
_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def answer(document: dict[str, Any]) -> Response:
    return HTMLResponse("".join(_page(document)), headers={"content-security-policy": _POLICY})


def _page(document: dict[str, Any]) -> Iterator[str]:
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>Noonbell API</title><style>{_STYLE}</style></head><body><h1>Noonbell API</h1>"
    yield f"<p>Version {escape(document['info']['version'])}. For programs: "
    yield '<a href="/openapi.json">/openapi.json</a>.</p>'
    for tag in document["tags"]:
        yield f"<h2>{escape(tag['name'])}</h2><p class=said>{escape(tag['description'])}</p>"
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if tag["name"] in operation["tags"]:
                    yield from _operation(path, method, operation)
    yield "</body></html>"


def _operation(path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"<details id={escape(operation['operationId'])}><summary><span class=method>{method.upper()}</span>"
    yield f"<code>{escape(path)}</code><span class=said>{escape(operation['summary'])}</span></summary>"
    if "description" in operation:
        yield f"<p>{escape(operation['description'])}</p>"
    if "parameters" in operation:
        yield "<table>"
        for each in operation["parameters"]:
            yield f"<tr><td><code>{escape(each['name'])}</code><td>{each['in']}<td>{escape(each['description'])}"
        yield "</table>"
    if "requestBody" in operation:
        yield "<p>Body</p>" + _json(operation["requestBody"]["content"]["application/json"]["example"])
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            (content,) = response["content"].values()
            yield f"<p>Answer {status}</p>" + _json(content["example"])
    errors = [status for status in operation["responses"] if not status.startswith("2")]
    yield f"<p class=said>Errors: {', '.join(errors)}</p></details>"


def _json(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return f"<pre>{escape(text)}</pre>"
