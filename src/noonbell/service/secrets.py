"""What must not be shown: the values of all headers but the harmless ones, signing secrets, and where alerts are sent.

An answer shows MASK in their place. MASK that is written back means: as it was. In the store they are sealed, where a
key is configured: they are sealed where a task or a channel is saved, and opened where a request is made of it.

`rotate` seals everything with the first key, in small batches. If the process dies half way, the next call goes on: what
is sealed with the first key already is left as it is. Nodes go on meanwhile; one that still seals with another key would
undo it, so all of them have the new key first before it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from noonbell.errors import InvalidArgument, InvalidState, SettingsError
from noonbell.masking import is_harmless_header, masked_headers
from noonbell.model.alert import Channel
from noonbell.model.task import TaskSpec
from noonbell.ports import Store
from noonbell.sealing import SETTING, Sealer, is_sealed

MASK: Final = "***"

masked = masked_headers


def is_secret(header: str) -> bool:
    return not is_harmless_header(header)


def unmasked(given: Mapping[str, Any], kept: Mapping[str, str]) -> dict[str, Any]:
    """`given`, where MASK stands for the value that is kept under that name."""
    known = {name.lower(): value for name, value in kept.items()}
    return {
        name: known.get(name.lower(), value) if value == MASK and isinstance(name, str) else value
        for name, value in given.items()
    }


def refuse_carried(kept: TaskSpec, given: Mapping[str, Any], made: Mapping[str, Any]) -> None:
    """InvalidArgument where a change of a task would send secrets that it does not name to another origin.

    `kept` is the task as it is, its secrets opened, `given` what the caller wrote, with MASK or without the field, and
    `made` the fields that follow from it. Who may change a task need not know its secrets.
    """
    target = made.get("target_url")
    if not isinstance(target, str) or _origin(target) == _origin(kept.target_url):
        return
    why = (
        f"is kept from a target of another origin ({kept.target_url or 'none'}); write its value anew, or leave it out"
    )
    headers, written = made.get("headers"), given.get("headers")
    said = written if isinstance(written, Mapping) else {}
    known = {name.lower(): value for name, value in kept.headers.items() if value and is_secret(name)}
    problems = {
        f"headers.{name}": why
        for name, value in (headers.items() if isinstance(headers, Mapping) else ())
        if value == known.get(str(name).lower()) and said.get(name, MASK) == MASK
    }
    if kept.secret and made.get("secret") == kept.secret and given.get("secret", MASK) == MASK:
        problems["secret"] = why
    if problems:
        raise InvalidArgument.fields(problems)


def _origin(url: str | None) -> tuple[str, str, int | None] | str | None:
    """Scheme, host and port; the text itself where it has none of them."""
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
        return parts.scheme, parts.hostname or "", port
    except ValueError:
        return url


Holder = TypeVar("Holder", TaskSpec, Channel)
"""A task or a channel: what has secrets."""

_FIELDS: Final = ("secret", "url")
"""Fields that are secret as a whole, of tasks and channels, beside the values of secret headers."""

Turn = Callable[[str, str | None], str]
"""From a text, and what stands in its place in something like it, to another."""


def sealed(holder: Holder, sealer: Sealer, kept: Holder | None = None) -> Holder:
    """`holder` with its secrets sealed; those that `kept` has too stay as they are there."""
    fields = turned(_fields_of(holder), sealer.seal, {} if kept is None else _fields_of(kept))
    return msgspec.structs.replace(holder, **fields)


def opened(holder: Holder, sealer: Sealer) -> Holder:
    """`holder` with its secrets as they are. InvalidState without their key."""
    return _turned(holder, sealer.open)


def opened_where_possible(holder: Holder, sealer: Sealer) -> Holder:
    """`holder` with its secrets as they are; those whose key is not here stay sealed, and no reader takes them."""

    def open_(text: str) -> str:
        try:
            return sealer.open(text)
        except InvalidState:
            return text

    return _turned(holder, open_)


def _turned(holder: Holder, turn: Callable[[str], str]) -> Holder:
    fields: dict[str, Any] = _fields_of(holder)
    texts = [*fields["headers"].values(), *(fields[name] or "" for name in _FIELDS if name in fields)]
    if not any(map(is_sealed, texts)):
        return holder  # as in most installations, for every call of a task that has no plan
    found = turned(fields, lambda text, _: turn(text))
    return holder if found == fields else msgspec.structs.replace(holder, **found)


def turned(fields: Mapping[str, Any], turn: Turn, kept: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`fields` (those of a task or of a channel) with `turn` applied to each secret in them."""
    found, kept = dict(fields), kept or {}
    known = {name.lower(): value for name, value in (kept.get("headers") or {}).items()}
    found["headers"] = {
        # What was sealed once is opened under any name: which names are secret may change from version to version.
        name: turn(value, known.get(name.lower())) if value and (is_secret(name) or is_sealed(value)) else value
        for name, value in (fields.get("headers") or {}).items()
    }
    for name in _FIELDS:
        if fields.get(name):
            found[name] = turn(fields[name], kept.get(name))
    return found


def _fields_of(holder: TaskSpec | Channel) -> dict[str, Any]:
    return {name: getattr(holder, name) for name in ("headers", *_FIELDS) if hasattr(holder, name)}


_BATCH: Final = 200
_MOST_PASSES: Final = 5


@dataclass(frozen=True, slots=True)
class Rotated:
    """How many rows were written."""

    tasks: int = 0
    versions: int = 0
    channels: int = 0

    @property
    def all(self) -> int:
        return self.tasks + self.versions + self.channels


async def rotate(store: Store, sealer: Sealer, batch: int = _BATCH) -> Rotated:
    """SettingsError without a key; InvalidState, naming the key, for what cannot be opened: nothing of that batch is written."""
    if sealer.first is None:
        raise SettingsError.field(SETTING, "is not set; it names the file with the keys, the new one first")

    def reseal(fields: dict[str, Any]) -> dict[str, Any]:
        return turned(fields, lambda text, _: _resealed(text, sealer))

    total = Rotated()
    for _ in range(_MOST_PASSES):
        done = await _pass(store, reseal, batch)
        total = Rotated(total.tasks + done.tasks, total.versions + done.versions, total.channels + done.channels)
        if not done.all:
            return total
    raise InvalidState(
        "somebody seals with another key at the same time; give every node the same key file, and start again"
    )


def _resealed(text: str, sealer: Sealer) -> str:
    if sealer.is_current(text):
        sealer.open(text)  # raises now for one that cannot be opened, while its key may still be found
        return text
    return sealer.seal(sealer.open(text))


async def _pass(store: Store, reseal: Any, batch: int) -> Rotated:
    tasks = versions = 0
    after: int | None = -1
    while after is not None:
        after, written = await store.reseal_tasks(after, batch, reseal)
        tasks += written
    place: tuple[int, int] | None = (-1, 0)
    while place is not None:
        place, written = await store.reseal_versions(place, batch, reseal)
        versions += written
    return Rotated(tasks, versions, await store.reseal_channels(reseal))
