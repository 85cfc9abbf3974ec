"""What must not be shown: the values of all headers but the harmless ones, signing secrets, and where alerts are sent.

An answer shows MASK in their place. MASK that is written back means: as it was. In the store they are sealed, where a
key is configured: they are sealed where a task or a channel is saved, and opened where a request is made of it.

`rotate` seals everything with the first key, in small batches. If the process dies half way, the next call goes on: what
is sealed with the first key already is left as it is. Nodes go on meanwhile; one that still seals with another key would
undo it, so all of them have the new key first before it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from noonbell.errors import InvalidArgument, InvalidState, SettingsError
from noonbell.masking import is_harmless_header, masked_headers
from noonbell.model.alert import Channel
from noonbell.model.task import Step, TaskSpec
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
    _refuse_carried_in_steps(kept, given, made)
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


def _refuse_carried_in_steps(kept: TaskSpec, given: Mapping[str, Any], made: Mapping[str, Any]) -> None:
    """The same for each step of a flow that has the id of one that there is."""
    steps, asked = made.get("steps"), given.get("steps")
    if not kept.steps or not isinstance(steps, list | tuple) or not isinstance(asked, list | tuple):
        return
    known = {step.id: step for step in kept.steps}
    for index, (was, step) in enumerate(zip(asked, steps, strict=False)):
        found = known.get(str(step.get("id"))) if isinstance(step, Mapping) and isinstance(was, Mapping) else None
        if found is None:
            continue
        try:
            # What a step leaves out it does not keep: a change names all steps as a whole.
            refuse_carried(found, {"headers": {}, "secret": None, **was}, step)
        except InvalidArgument as error:
            problems = {f"steps[{index}].{name}": problem for name, problem in error.details.items()}
            raise InvalidArgument.fields(problems) from None


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
    known = {} if kept is None else {step.id: step for step in _steps_of(kept)}
    if steps := tuple(sealed(step, sealer, known.get(step.id)) for step in _steps_of(holder)):
        fields["steps"] = steps
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
    steps = [_turned(step, turn) for step in _steps_of(holder)]
    if any(made is not step for made, step in zip(steps, _steps_of(holder), strict=True)):
        holder = msgspec.structs.replace(holder, steps=tuple(steps))
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
    if fields.get("steps"):
        found["steps"] = [{**step, **turned(_secrets_in(step), turn)} for step in fields["steps"]]
    return found


def _secrets_in(step: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a step, as the store writes it, that may hold secrets."""
    return {name: step.get(name) or {} for name in ("headers",)} | {
        name: step[name] for name in _FIELDS if name in step
    }


def masked_steps(steps: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Steps as an answer shows them."""
    return [_masked_step(step) for step in steps]


def _masked_step(step: Mapping[str, Any]) -> dict[str, Any]:
    shown = dict(step)
    if shown.get("headers"):
        shown["headers"] = masked(shown["headers"])
    if shown.get("secret") is not None:
        shown["secret"] = MASK
    return shown


def unmasked_steps(given: Any, kept: Sequence[Step]) -> Any:
    """`given`, where MASK in a step stands for what the step of the same id has."""
    if not isinstance(given, list | tuple):
        return given
    known = {step.id: step for step in kept}
    return [
        _unmasked_step(step, known.get(str(step.get("id")))) if isinstance(step, Mapping) else step for step in given
    ]


def _unmasked_step(given: Mapping[str, Any], kept: Step | None) -> dict[str, Any]:
    made = dict(given)
    if kept is None:
        return made
    if isinstance(made.get("headers"), Mapping):
        made["headers"] = unmasked(made["headers"], kept.headers)
    if made.get("secret") == MASK and kept.secret is not None:
        made["secret"] = kept.secret
    return made


def _steps_of(holder: TaskSpec | Channel) -> tuple[Step, ...]:
    return holder.steps if isinstance(holder, TaskSpec) else ()


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
    calls: int = 0

    @property
    def all(self) -> int:
        return self.tasks + self.versions + self.channels + self.calls

    def __add__(self, other: Rotated) -> Rotated:
        return Rotated(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


async def rotate(store: Store, sealer: Sealer, batch: int = _BATCH) -> Rotated:
    """SettingsError without a key; InvalidState, naming the key, for what cannot be opened: nothing of that batch is written."""
    if sealer.first is None:
        raise SettingsError.field(SETTING, "is not set; it names the file with the keys, the new one first")

    def reseal(fields: dict[str, Any]) -> dict[str, Any]:
        return turned(fields, lambda text, _: _resealed(text, sealer))

    total = Rotated()
    for _ in range(_MOST_PASSES):
        done = await _pass(store, reseal, batch)
        total += done
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
    calls, after = 0, -1
    while after is not None:
        after, written = await store.reseal_calls(after, batch, reseal)
        calls += written
    return Rotated(tasks, versions, await store.reseal_channels(reseal), calls)
