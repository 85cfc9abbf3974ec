"""What a handler takes, read from its signature: the payload's fields with their types, and whether it wants a Context.

One contract for both ends: a payload that `write` lets through when it is published, `read` accepts when it is run.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Union

import msgspec
from msgspec import UNSET, UnsetType

from noonbell.errors import InvalidArgument, NotFound
from noonbell.fields.kinds import unfit_json
from noonbell.fields.problems import Problems, shown
from noonbell.masking import is_named_for_a_secret
from noonbell.targets.jobs.handler import Context

_CONTEXT_NAMES: Final = ("ctx", "context")
"""A first parameter of this name without an annotation is the Context."""

_SAFE: Final = 2**53
"""Integers below it are the same in every reader of JSON."""

_PLACE = re.compile(r"^(?P<text>.*?) - at (?:`key` in )?`\$(?P<path>[^`]*)`$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Signature:
    wants_context: bool
    types: Mapping[str, Any]
    """The payload's fields by name."""
    required: frozenset[str]
    open_to_more: bool
    """It takes `**more`: fields beyond its own are let through."""
    returns: Any
    """The type of the result; Any where the handler does not say."""
    struct: type[msgspec.Struct]
    defaults: Mapping[str, str | float | bool]
    """What a form says of fields that may be left out: plain values only, and none of a field that is named for a secret."""

    def read(self, payload: Any) -> dict[str, Any]:
        """The handler's arguments from JSON; what is absent is left to the handler's defaults.

        InvalidArgument names every field that is missing, unknown or of another type.
        """
        given = {} if payload is None else payload
        whole = self._converted(given)
        arguments = {name: value for name in self.types if (value := getattr(whole, name)) is not UNSET}
        if self.open_to_more:
            arguments |= {name: value for name, value in given.items() if name not in self.types}
        return arguments

    def _converted(self, given: Any) -> msgspec.Struct:
        try:
            return msgspec.convert(given, self.struct, dec_hook=from_plain, str_keys=True)
        except msgspec.ValidationError:
            raise self._problems_of(given) from None

    def write(self, given: Any) -> dict[str, Any]:
        """The payload as JSON, checked as `read` will check it. InvalidArgument as there."""
        if type(given) is not dict and not isinstance(given, Mapping):
            raise self._problems_of(given)
        problems: Problems | None = None
        payload: dict[str, Any] = {}
        for name, value in given.items():
            try:
                payload[name] = as_json(value)
            except InvalidArgument as error:
                problems = problems or Problems()
                problems.add(name, error.message)
        if problems is not None:
            problems.finish()
        self._converted(payload)
        return payload

    def schema(self) -> dict[str, Any]:
        """The payload's fields as JSON Schema, as far as a form needs it: plain types and choices; anything else is `{}`."""
        fields = {name: self._field_schema(name, type_) for name, type_ in self.types.items()}
        return {"properties": fields, "required": [name for name in self.types if name in self.required]}

    def _field_schema(self, name: str, type_: Any) -> dict[str, Any]:
        found = _plain_schema(type_)
        return {**found, "default": self.defaults[name]} if found and name in self.defaults else found

    def result(self, value: Any) -> Any:
        """What was stored as the handler's result, in the type that it says it returns; as it is where that does not fit."""
        if self.returns is Any:
            return value
        try:
            return msgspec.convert(value, self.returns, dec_hook=from_plain, str_keys=True)
        except (TypeError, ValueError, NotImplementedError):
            return value

    def _problems_of(self, given: Any) -> InvalidArgument:
        if not isinstance(given, Mapping):
            what = f"an object with {', '.join(self.types)}" if self.types else "an empty object"
            return InvalidArgument.field("payload", f"is {shown(given)}; expected {what}")
        problems = Problems()
        for name, type_ in self.types.items():
            if name in given:
                for place, problem in _misfit(given[name], type_):
                    problems.add(f"{name}{place}", problem)
            elif name in self.required:
                problems.add(name, "is missing")
        for name in given:
            if name not in self.types and not self.open_to_more:
                fields = ", ".join(self.types) or "nothing at all"
                problems.add(str(name)[:60], f"is not a field of this payload; it takes {fields}")
        return InvalidArgument.fields(problems.found)


def _plain_schema(type_: Any) -> dict[str, Any]:
    try:
        whole = msgspec.json.schema(type_, schema_hook=lambda _: {})
    except TypeError:
        return {}
    found = [
        each for each in whole.get("anyOf", [whole]) if each.get("type") != "null"
    ]  # `int | None` is asked for as `int`
    ref = found[0].get("$ref", "") if len(found) == 1 else ""
    only = whole.get("$defs", {}).get(ref.rpartition("/")[2], {}) if ref else found[0] if len(found) == 1 else {}
    if "enum" in only:
        return {"enum": list(only["enum"])}
    is_plain = only.get("type") in ("integer", "number", "string", "boolean")
    return {"type": only["type"]} if is_plain else {}


def signature_of(function: Callable[..., Any], names: Mapping[str, Any], reserved: frozenset[str]) -> Signature:
    """`names` are those that annotations may use besides the module's. InvalidArgument for what no payload can carry.

    `reserved` are the options of publish: a payload's field of that name could never be given.
    """
    hints = _hints_of(function, names)
    parameters = list(inspect.signature(function).parameters.values())
    wants_context = bool(parameters) and _is_context(parameters[0], hints)
    problems = Problems()
    types: dict[str, Any] = {}
    required: set[str] = set()
    defaults: dict[str, str | float | bool] = {}
    open_to_more = False
    for parameter in parameters[wants_context:]:
        name = parameter.name
        if parameter.kind is parameter.VAR_KEYWORD:
            open_to_more = True
        elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            problems.add(name, "has no name in a payload; expected parameters that can be given by keyword")
        elif name in reserved:
            problems.add(
                name, "is an option of publish, so a payload's field cannot be called that; rename the parameter"
            )
        else:
            types[name] = hints.get(name, Any)
            _check_type(name, types[name], problems)
            if parameter.default is parameter.empty:
                required.add(name)
            elif _may_be_shown(name, parameter.default):
                defaults[name] = parameter.default
    problems.finish()
    return Signature(
        wants_context=wants_context,
        types=types,
        required=frozenset(required),
        open_to_more=open_to_more,
        returns=hints.get("return", Any),
        struct=_struct_of(function.__name__, types, required, open_to_more=open_to_more),
        defaults=defaults,
    )


def nothing() -> Signature:
    """Of what takes no payload."""
    return signature_of(lambda: None, {}, frozenset())


_LONGEST_DEFAULT: Final = 100


def _may_be_shown(name: str, default: object) -> bool:
    is_plain = type(default) in (str, int, float, bool) and unfit_json(default) is None
    return is_plain and 0 < len(str(default)) <= _LONGEST_DEFAULT and not is_named_for_a_secret(name)


def as_json(value: Any) -> Any:
    """The value in plain objects, lists, texts and numbers. InvalidArgument says why it cannot be."""
    if (type(value) is int and -_SAFE < value < _SAFE) or (type(value) is str and value.isascii()):
        return value
    try:
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=to_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"is {shown(value)}, which JSON cannot represent: {error}") from None
    problem = unfit_json(plain)
    if problem is not None:
        raise InvalidArgument(problem)
    return plain


def from_plain(type_: type[Any], value: Any) -> Any:
    """How msgspec asks about types that it does not know: pydantic's models know themselves."""
    if type_ is object:
        return value
    validate = getattr(type_, "model_validate", None)
    if validate is None:
        raise NotImplementedError
    return validate(value)


def to_plain(value: Any) -> Any:
    """The other way round."""
    dump = getattr(value, "model_dump", None)
    if dump is None or isinstance(value, type):
        raise TypeError(f"{type(value).__name__} has no JSON form")
    return dump(mode="json")


def _hints_of(function: Callable[..., Any], names: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, localns=dict(names), include_extras=True)
    except NameError as error:
        raise InvalidArgument(
            f"the annotations of {function.__name__} name {error.name!r}, which is not known when the job is declared;"
            " import it outside of TYPE_CHECKING, or define it above"
        ) from None


def _is_context(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> bool:
    if parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
        return False
    if parameter.name in hints:
        hint = hints[parameter.name]
        return isinstance(hint, type) and issubclass(hint, Context)
    return parameter.name in _CONTEXT_NAMES


def _check_type(name: str, type_: Any, problems: Problems) -> None:
    try:
        strangers = [each for each in _custom_types(msgspec.inspect.type_info(type_)) if not _knows_itself(each)]
        msgspec.json.Decoder(type_)
    except TypeError as error:
        problems.add(name, f"has a type that cannot be checked: {error}")
        return
    for stranger in strangers[:1]:
        said = getattr(stranger, "__name__", str(stranger))
        problems.add(
            name,
            f"is a {said}, which a payload cannot carry; what a handler only uses it gets from ctx.resource({said})",
        )


def _knows_itself(type_: Any) -> bool:
    return type_ is object or hasattr(type_, "model_validate")


def _custom_types(info: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """The classes inside a type that msgspec would have to ask us about."""
    seen = set() if seen is None else seen
    if id(info) in seen:
        return
    seen.add(id(info))
    if isinstance(info, msgspec.inspect.CustomType):
        yield info.cls
    elif isinstance(info, tuple):
        for each in info:
            yield from _custom_types(each, seen)
    elif isinstance(info, msgspec.Struct):
        for name in info.__struct_fields__:
            yield from _custom_types(getattr(info, name), seen)


def _struct_of(name: str, types: Mapping[str, Any], required: set[str], *, open_to_more: bool) -> type[msgspec.Struct]:
    fields: list[Any] = [
        (field, type_) if field in required else (field, Union[type_, UnsetType], UNSET)  # noqa: UP007 - built at run time
        for field, type_ in types.items()
    ]
    return msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=not open_to_more)


def _misfit(value: Any, type_: Any) -> Iterator[tuple[str, str]]:
    """Where a value is not what the type says, and how, as (path inside it, problem)."""
    try:
        msgspec.convert(value, type_, dec_hook=from_plain, str_keys=True)
    except msgspec.ValidationError as error:
        found = _PLACE.match(str(error))
        place = found["path"] if found is not None else ""
        listed = getattr(error.__cause__, "errors", None)
        if listed is not None:  # a pydantic model, which names all that is wrong with it
            for each in listed():
                yield place + "".join(f".{part}" for part in each["loc"]), str(each["msg"])
            return
        text = (found["text"] if found is not None else str(error)).replace("`", "")
        problem = text[:1].lower() + text[1:]
        yield place, problem if place else f"is {shown(value)}; {problem}"


class Provided:
    """Called with a type or a name, it answers with what was provided under it: what `ctx.resource` asks."""

    def __init__(self) -> None:
        self._by_name: dict[str, Any] = {}
        self._unnamed: dict[type[Any], Any] = {}

    def add(self, value: Any, name: str | None) -> None:
        """What had the name, or the very type, before is replaced: a pool is opened anew at each start."""
        if name is None:
            self._unnamed[type(value)] = value
        else:
            self._by_name[name] = value

    def __call__(self, wanted: Any) -> Any:
        if isinstance(wanted, str):
            if wanted in self._by_name:
                return self._by_name[wanted]
        elif wanted in self._unnamed:
            return self._unnamed[wanted]
        else:
            for value in (*self._unnamed.values(), *self._by_name.values()):
                if isinstance(value, wanted):
                    return value
        said = repr(wanted) if isinstance(wanted, str) else getattr(wanted, "__name__", str(wanted))
        raise NotFound(f"nothing was provided as {said}; call app.provide(…) before the app runs or in its lifespan")
