"""What must not be shown: the values of all headers and variables but the harmless ones, signing secrets, where alerts are sent.

An answer shows MASK in their place. MASK that is written back means: as it was. In the store they are sealed, where a
key is configured: they are sealed where a task, a channel or a subscription is saved, and opened where a request is made of it.

`rotate` seals everything with the first key, in small batches. If the process dies half way, the next call goes on: what
is sealed with the first key already is left as it is. Nodes go on meanwhile; one that still seals with another key would
undo it, so all of them have the new key first before it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote, urlsplit

import msgspec

from noonbell.errors import InvalidArgument, InvalidState, Sentence, SettingsError
from noonbell.fields.kinds import leaves
from noonbell.masking import (
    is_harmless_header,
    is_harmless_variable,
    mask_credentials,
    masked_env,
    masked_headers,
    split_credentials,
)
from noonbell.model import broker
from noonbell.model.alert import Channel
from noonbell.model.broker import BrokerMessage
from noonbell.model.grpc_call import GrpcCall
from noonbell.model.subscription import Subscription
from noonbell.model.target_kind import MESSAGE_FIELDS
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
    problems = {
        **_carried_to_command(kept, given, made),
        **_carried_in_messages(kept, given, made),
        **_carried_by_grpc(kept.grpc, given.get("grpc"), made.get("grpc")),
        **_carried_to_origin(kept, given, made),
    }
    if problems:
        raise InvalidArgument.fields(problems)


def _carried(field: str, kept: Mapping[str, str], given: Any, made: Any) -> list[str]:
    """The names of secret headers or variables that a change has from what is kept, and not from its caller."""
    said = given if isinstance(given, Mapping) else {}
    known = {name.lower(): value for name, value in kept.items() if value and _BY_NAME[field](name)}
    values = made.items() if isinstance(made, Mapping) else ()
    return [
        name
        for name, value in values
        if value and value == known.get(str(name).lower()) and said.get(name, MASK) == MASK
    ]


def _carried_to_origin(kept: TaskSpec, given: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, str]:
    target = made.get("target_url")
    if not isinstance(target, str) or _origin(target) == _origin(kept.target_url):
        return {}
    template = "is not sent to another origin than that of {target}; enter it again, or leave it out"
    why = Sentence(template, target=kept.target_url or "none")
    carried = _carried("headers", kept.headers, given.get("headers"), made.get("headers"))
    problems: dict[str, str] = {f"headers.{name}": why for name in carried}
    if kept.secret and made.get("secret") == kept.secret and given.get("secret", MASK) == MASK:
        problems["secret"] = why
    return problems


_RUNS: Final = ("command", "shell", "cwd", "user")
"""The fields that say what a command does: any of them may lead its environment elsewhere."""


def _carried_to_command(kept: TaskSpec, given: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, str]:
    """The same for the environment of a command: another one would show it to who wrote that one."""
    if all(_plain_list(made.get(name) or None) == (_plain_list(getattr(kept, name)) or None) for name in _RUNS):
        return {}
    why = "is not given to another command; enter it again, or leave it out"
    return {f"env.{name}": why for name in _carried("env", kept.env, given.get("env"), made.get("env"))}


def _plain_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


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
            refuse_carried(found, {"headers": {}, "env": {}, "secret": None, "grpc": {}, **was}, step)
        except InvalidArgument as error:
            problems = {f"steps[{index}].{name}": problem for name, problem in error.sentences.items()}
            raise InvalidArgument.fields(problems) from None


def _carried_in_messages(kept: TaskSpec, given: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, str]:
    """The same for the headers of a message to a broker. A password in its address is kept only with the whole address."""
    problems: dict[str, str] = {}
    for field in MESSAGE_FIELDS:
        was, message, written = getattr(kept, field), made.get(field), given.get(field)
        if was is None or not isinstance(message, Mapping) or not isinstance(url := message.get("url"), str):
            continue
        if broker.origin_of(url) != broker.origin_of(was.url):
            said = written.get("headers") if isinstance(written, Mapping) else None
            template = "is not sent to another broker than {broker}; enter it again, or leave it out"
            why = Sentence(template, broker=mask_credentials(was.url))
            carried = _carried("headers", was.headers, said, message.get("headers"))
            problems |= {f"{field}.headers.{name}": why for name in carried}
    return problems


def _carried_by_grpc(kept: GrpcCall | None, given: Any, made: Any) -> dict[str, str]:
    """The same for the metadata and the private key of a gRPC call. A change names the call as a whole."""
    if kept is None or not isinstance(given, Mapping) or not isinstance(made, Mapping):
        return {}
    if _peer_of(made) == _peer_of(msgspec.to_builtins(kept)):
        return {}
    template = "is not sent to another server than {server}; enter it again, or leave it out"
    why = Sentence(template, server=kept.address)
    said, tls = given.get("metadata"), given.get("tls")
    problems: dict[str, str] = {
        f"grpc.metadata.{name}": why
        for name, value in (said.items() if isinstance(said, Mapping) else ())
        if value == MASK and kept.metadata.get(str(name).lower())
    }
    if isinstance(tls, Mapping) and tls.get("key") == MASK and kept.tls is not None and kept.tls.key:
        problems["grpc.tls.key"] = why
    return problems


def _peer_of(call: Mapping[str, Any]) -> tuple[Any, ...]:
    """Where a gRPC call goes, and how the server there is known."""
    tls = call.get("tls")
    known = (tls.get("ca"), tls.get("server_name")) if isinstance(tls, Mapping) else None
    return str(call.get("address")).strip(), known


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


Holder = TypeVar("Holder", TaskSpec, Channel, Subscription)
"""A task, a channel or a subscription: what has secrets."""

_FIELDS: Final = ("secret", "url")
"""Fields that are secret as a whole, of tasks, channels and subscriptions, beside the values of secret headers."""

_BY_NAME: Final[Mapping[str, Callable[[str], bool]]] = {
    "headers": is_secret,
    "env": lambda name: not is_harmless_variable(name),
}
"""Fields whose values are secret by their names, with what says so."""

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
    texts = [text for name in _BY_NAME for text in fields.get(name, {}).values()]
    texts += [fields[name] or "" for name in _FIELDS if name in fields]
    for name in MESSAGE_FIELDS:
        message: Any = fields.get(name)
        if message is not None:
            texts += [credentials(message.url) or "", *message.headers.values()]
    texts += _texts_of_call(fields.get("grpc"))
    if not any(map(is_sealed, texts)):
        return holder  # as in most installations, for every call of a task that has no plan
    found = turned(fields, lambda text, _: turn(text))
    return holder if found == fields else msgspec.structs.replace(holder, **found)


def turned(fields: Mapping[str, Any], turn: Turn, kept: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`fields` (those of a task or of a channel) with `turn` applied to each secret in them."""
    found, kept = dict(fields), kept or {}
    for field in _BY_NAME:
        if field in fields:
            found[field] = _turned_values(field, fields[field], turn, kept.get(field))
    for name in _FIELDS:
        if fields.get(name):
            found[name] = turn(fields[name], kept.get(name))
    for name in MESSAGE_FIELDS:
        if fields.get(name):
            found[name] = _turned_message(fields[name], turn, kept.get(name))
    if fields.get("grpc"):
        found["grpc"] = _turned_call(fields["grpc"], turn, kept.get("grpc"))
    if fields.get("steps"):
        found["steps"] = [{**step, **turned(_secrets_in(step), turn)} for step in fields["steps"]]
    return found


def _turned_values(field: str, values: Any, turn: Turn, kept: Any) -> dict[str, Any]:
    """Headers or variables with `turn` applied to those that are secret by their names."""
    known = {name.lower(): value for name, value in (kept or {}).items()}
    return {
        # What was sealed once is opened under any name: which names are secret may change from version to version.
        name: turn(value, known.get(name.lower())) if value and (_BY_NAME[field](name) or is_sealed(value)) else value
        for name, value in (values or {}).items()
    }


def _turned_message(message: Any, turn: Turn, kept: Any) -> Any:
    """A message to a broker, as a Struct or as the store writes it: its address, if that has credentials, and secret headers."""
    if isinstance(message, BrokerMessage):
        was = BrokerMessage(url="") if kept is None else kept
        url = _turned_url(message.url, turn, was.url)
        return msgspec.structs.replace(
            message, url=url, headers=_turned_values("headers", message.headers, turn, was.headers)
        )
    headers = _turned_values("headers", message.get("headers"), turn, None)
    return {**message, "url": _turned_url(message["url"], turn, None), "headers": headers}


def _turned_url(url: str, turn: Turn, kept: str | None) -> str:
    """User and password are turned as one text; the rest of the address stays readable."""
    found = split_credentials(url)
    if found is None:
        return url
    before, info, after = found
    made = turn(credentials(url) or info, None if kept is None else credentials(kept))
    return f"{before}{quote(made, safe='') if is_sealed(made) else made}@{after}"


def credentials(url: str) -> str | None:
    """User and password of a broker's address, as one text, sealed or not."""
    found = split_credentials(url)
    if found is None:
        return None
    plain = unquote(found[1])
    return plain if is_sealed(plain) else found[1]


def _secrets_in(step: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a step, as the store writes it, that may hold secrets."""
    found = {name: step[name] for name in ("env", "grpc", *_FIELDS, *MESSAGE_FIELDS) if name in step}
    return {"headers": step.get("headers") or {}} | found


def _turned_call(call: Any, turn: Turn, kept: Any) -> Any:
    """A gRPC call, as a Struct or as the store writes it, with `turn` applied to its metadata and its private key."""
    fields = msgspec.to_builtins(call)
    known = msgspec.to_builtins(kept) if kept is not None else {}
    fields["metadata"] = _turned_values("headers", fields.get("metadata"), turn, known.get("metadata"))
    tls = fields.get("tls")
    if tls is not None and tls.get("key"):
        fields["tls"] = {**tls, "key": turn(tls["key"], (known.get("tls") or {}).get("key"))}
    return msgspec.convert(fields, GrpcCall) if isinstance(call, GrpcCall) else fields


def _texts_of_call(call: GrpcCall | None) -> list[str]:
    if call is None:
        return []
    return [*call.metadata.values(), *([] if call.tls is None or call.tls.key is None else [call.tls.key])]


def masked_call(call: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A gRPC call as an answer shows it."""
    if call is None:
        return None
    shown = {**call, "metadata": masked(call.get("metadata") or {})}
    tls = call.get("tls")
    if tls is not None and tls.get("key"):
        shown["tls"] = {**tls, "key": MASK}
    return shown


def unmasked_call(given: Any, kept: GrpcCall | None) -> Any:
    """`given`, where MASK stands for what the call has that is kept."""
    if not isinstance(given, Mapping) or kept is None:
        return given
    made = dict(given)
    if isinstance(made.get("metadata"), Mapping):
        made["metadata"] = unmasked(made["metadata"], kept.metadata)
    tls = made.get("tls")
    if isinstance(tls, Mapping) and tls.get("key") == MASK and kept.tls is not None and kept.tls.key:
        made["tls"] = {**tls, "key": kept.tls.key}
    return made


def masked_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a task or a step as an answer shows them."""
    return {name: masked_value(name, value) for name, value in fields.items()}


def masked_value(name: str, value: Any) -> Any:
    """The value of a field of a task or a step, as an answer shows it."""
    return value if value is None or name not in _MASKS else _MASKS[name](value)


def masked_steps(steps: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Steps as an answer shows them."""
    return [masked_fields(step) for step in steps]


def _masked_message(message: Mapping[str, Any]) -> dict[str, Any]:
    shown = {**message, "url": mask_credentials(message["url"])}
    if shown.get("headers"):
        shown["headers"] = masked(shown["headers"])
    return shown


_MASKS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "headers": masked,
    "env": masked_env,
    "secret": lambda _: MASK,
    "grpc": masked_call,
    "steps": masked_steps,
    **dict.fromkeys(MESSAGE_FIELDS, _masked_message),
}
"""The fields of a task that have secrets, and how each is shown."""


MESSAGE_URLS: Final = tuple(f"{field}.url" for field in MESSAGE_FIELDS)
"""Of which only the credentials are masked."""


def masked_values(spec: TaskSpec) -> dict[str, str]:
    """What an answer masks of a task, all or a part of it, by the path of the field."""
    found = {f"headers.{name}": value for name, value in spec.headers.items() if is_secret(name)}
    found |= {f"env.{name}": value for name, value in spec.env.items() if not is_harmless_variable(name)}
    if spec.secret is not None:
        found["secret"] = spec.secret
    for field in MESSAGE_FIELDS:
        if (message := getattr(spec, field)) is not None:
            found[f"{field}.url"] = message.url
            found |= {f"{field}.headers.{name}": value for name, value in message.headers.items() if is_secret(name)}
    if spec.grpc is not None:
        found |= {f"grpc.metadata.{name}": value for name, value in spec.grpc.metadata.items() if is_secret(name)}
        if spec.grpc.tls is not None and spec.grpc.tls.key is not None:
            found["grpc.tls.key"] = spec.grpc.tls.key
    for step in spec.steps:
        found |= {f"steps.{step.id}.{name}": value for name, value in masked_values(step).items()}
    return found


def hides_secrets(fields: Mapping[str, Any]) -> bool:
    """Whether one of the fields has MASK in it."""
    return any(isinstance(each, str) and MASK in each for name in _MASKS for each in leaves(fields.get(name)))


def unmasked_fields(given: Mapping[str, Any], kept: TaskSpec) -> dict[str, Any]:
    """`given`, where MASK stands for what the task, or the step, has."""
    made = dict(given)
    for name in ("headers", "env"):
        if isinstance(made.get(name), Mapping):
            made[name] = unmasked(made[name], getattr(kept, name))
    if made.get("secret") == MASK and kept.secret is not None:
        made["secret"] = kept.secret
    if "grpc" in made:
        made["grpc"] = unmasked_call(made["grpc"], kept.grpc)
    if "steps" in made:
        made["steps"] = unmasked_steps(made["steps"], kept.steps)
    for name in MESSAGE_FIELDS:
        if isinstance(made.get(name), Mapping) and getattr(kept, name) is not None:
            made[name] = _unmasked_message(made[name], getattr(kept, name))
    return made


def _unmasked_message(given: Mapping[str, Any], kept: BrokerMessage) -> dict[str, Any]:
    made = dict(given)
    if made.get("url") in _masks_of(kept.url):
        made["url"] = kept.url
    if isinstance(made.get("headers"), Mapping):
        made["headers"] = unmasked(made["headers"], kept.headers)
    return made


def _masks_of(url: str) -> tuple[str, ...]:
    """What answers show for an address: the user is shown where it is not sealed."""
    found = split_credentials(url)
    return () if found is None else (mask_credentials(url), f"{found[0]}{MASK}@{found[2]}")


def unmasked_steps(given: Any, kept: Sequence[Step]) -> Any:
    """`given`, where MASK in a step stands for what the step of the same id has."""
    if not isinstance(given, list | tuple):
        return given
    known = {step.id: step for step in kept}
    return [
        unmasked_fields(step, known[id_])
        if isinstance(step, Mapping) and (id_ := str(step.get("id"))) in known
        else step
        for step in given
    ]


def _steps_of(holder: TaskSpec | Channel | Subscription) -> tuple[Step, ...]:
    return holder.steps if isinstance(holder, TaskSpec) else ()


def _fields_of(holder: TaskSpec | Channel | Subscription) -> dict[str, Any]:
    named = (*_BY_NAME, *_FIELDS, *MESSAGE_FIELDS, "grpc")
    return {name: getattr(holder, name) for name in named if hasattr(holder, name)}


_BATCH: Final = 200
_MOST_PASSES: Final = 5


@dataclass(frozen=True, slots=True)
class Rotated:
    """How many rows were written."""

    tasks: int = 0
    versions: int = 0
    channels: int = 0
    calls: int = 0
    subscriptions: int = 0

    @property
    def all(self) -> int:
        return sum(astuple(self))

    def __add__(self, other: Rotated) -> Rotated:
        return Rotated(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


async def rotate(store: Store, sealer: Sealer, batch: int = _BATCH) -> Rotated:
    """SettingsError without a key; InvalidState, naming the key, for what cannot be opened: nothing of that batch is written."""
    if sealer.first is None:
        raise SettingsError.field(SETTING, "is not set; expected the file with the keys, the new one first")

    def reseal(fields: dict[str, Any]) -> dict[str, Any]:
        return turned(fields, lambda text, _: _resealed(text, sealer))

    total = Rotated()
    for _ in range(_MOST_PASSES):
        done = await _pass(store, reseal, batch)
        total += done
        if not done.all:
            return total
    raise InvalidState(
        "another process is encrypting with a different key at the same time; give every node the same key file, and"
        " run this again"
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
    channels, subscriptions = await store.reseal_channels(reseal), await store.reseal_subscriptions(reseal)
    return Rotated(tasks, versions, channels, calls, subscriptions)
