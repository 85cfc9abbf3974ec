"""Fields, declared once: a Struct whose fields carry `meta` is read, described and written from that declaration alone.

`read` turns a JSON object into a Struct and names every problem by its field; `schema` is what OpenAPI and editors get;
`example` is a whole object to show; `plain` is a Struct as an answer shows it. All four walk the same table of fields, which
is made from the Struct on its first use. `kinds` has the kinds of values, `problems` collects what is wrong.

Bounds are checked when a value comes in. They are kept in `Meta.extra`, where msgspec does not look: a row that was
written under other bounds can still be read from the store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, reduce
from itertools import islice
from types import GenericAlias
from typing import Annotated, Any, ClassVar, Final, TypeVar, cast

import msgspec
from msgspec import NODEFAULT, UNSET, inspect

from noonbell.clock import Instant
from noonbell.errors import Sentence
from noonbell.fields.kinds import (
    AnyKind,
    BoolKind,
    ChoiceKind,
    FieldKind,
    IntegerKind,
    JsonKind,
    ListKind,
    MapKind,
    NumberKind,
    Schema,
    TextKind,
    TimeKind,
    UnionKind,
)
from noonbell.fields.problems import MOST_PROBLEMS, SHOWN, Problems, ReadContext, shown

REF: Final = "#/components/schemas/"
S = TypeVar("S", bound=msgspec.Struct)
_LARGEST: Final = 2**53 - 1


def meta(description: str = "", *, examples: Iterable[Any] = (), **more: Any) -> msgspec.Meta:
    """What is known of a field besides its type.

    `ge`, `le`: of a number. `min_length`, `max_length`: of a text or a list. `pattern`: of a whole text. `lines`: line
    breaks and tabs may stand in the text. `moment`: a time in RFC 3339. `expected`: the words that follow "expected" in
    a problem, where the usual ones would not do; `missing`: the same for a field that is absent. `default`: what is
    said of the default, where it is not the Struct's own (None: nothing is said). `anything`: a value that is checked
    elsewhere. `choices`: the words that a text may be. `exact`: 5.0 is not 5. `minutes`: a moment without seconds will
    do. `is_one`: a list of words that is spoken of as a whole, such as the statuses of a filter. `read_only`: answers
    show it; in a body it is passed over. `schema`: more keywords of JSON Schema.
    """
    said: dict[str, Any] = {"description": description} if description else {}
    shown_as = list(examples)
    return msgspec.Meta(extra={**said, **({"examples": shown_as} if shown_as else {}), **more})


Moment = Annotated[Instant, meta(moment=True)]
"""An instant that JSON shows as RFC 3339."""

FROM_TO: Final = {"since": "from", "until": "to"}
"""`rename` of a Struct whose time range JSON calls `from` and `to`."""


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """`1 task`, `2 tasks`; with a plural of its own, `1 task is`, `2 tasks are`. For English messages.

    The dashboard's catalogues, in both languages, part `one|many` in the text itself.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def shortened(names: Sequence[str], most: int = 20) -> str:
    """The first of them, and how many there are besides: `a, b, … (+3)`. The same in every language."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f", … (+{more:,})" if more > 0 else "")


@dataclass(frozen=True, slots=True)
class StructKind(FieldKind):
    """An object that is a Struct of its own."""

    of: type[msgspec.Struct]
    what: str = "an object"
    is_struct: ClassVar[bool] = True

    def read(self, value: Any, at: ReadContext, name: str) -> Any:
        if not isinstance(value, Mapping):
            at.expected(name, value, self.what)
            return self.sample_struct()
        return read_into(self.of, value, at.inside(name))

    def schema(self) -> Schema:
        return {"$ref": REF + component_of(self.of)}

    def structs(self) -> tuple[type[msgspec.Struct], ...]:
        return (self.of,)

    def sample(self) -> Any:
        return example(self.of)

    def sample_struct(self) -> Any:
        return self.of(**{each.attribute: each.kind.sample() for each in table(self.of).values() if each.is_required})

    def plain(self, value: Any) -> Any:
        return _plain_fields(self.of, value)

    @property
    def is_plain(self) -> bool:
        return all(each.kind.is_plain for each in table(self.of).values())


@dataclass(frozen=True, slots=True)
class TaggedKind(FieldKind):
    """An object of one of several Structs, told apart by one of its fields."""

    tag: str
    of: Mapping[str, type[msgspec.Struct]]
    what: str = "an object"

    def read(self, value: Any, at: ReadContext, name: str) -> Any:
        first = StructKind(next(iter(self.of.values())), self.what)
        if not isinstance(value, Mapping):
            at.expected(name, value, self.what)
            return first.sample_struct()
        inner = at.inside(name)
        word = value.get(self.tag)
        if not isinstance(word, str) or word not in self.of:
            what = Sentence("one of {words}", words=", ".join(self.of))
            template = "is missing; expected {what}" if word is None else "is {value}; expected {what}"
            inner.wrong(self.tag, template, value=shown(word), what=what)
            return first.sample_struct()
        return read_into(self.of[word], {each: given for each, given in value.items() if each != self.tag}, inner)

    def schema(self) -> Schema:
        return {"oneOf": [StructKind(each).schema() for each in self.of.values()]}

    def structs(self) -> tuple[type[msgspec.Struct], ...]:
        return tuple(self.of.values())

    def sample(self) -> Any:
        return example(next(iter(self.of.values())))


@dataclass(frozen=True, slots=True)
class StructField:
    name: str
    """In JSON."""
    attribute: str
    """In the Struct."""
    kind: FieldKind
    is_required: bool
    takes_null: bool
    may_be_unset: bool
    default: Any
    extra: Mapping[str, Any] = field(default_factory=dict)

    def schema(self, *, is_body: bool) -> Schema:
        made = self.kind.bounded() if is_body else self.kind.schema()
        if self.takes_null:
            made = {"anyOf": [made, {"type": "null"}]} if made else made
        more: Schema = {}
        if self.extra.get("description"):
            more["description"] = self.extra["description"]
        if is_body and "default" in self.extra:
            more |= {} if self.extra["default"] is None else {"default": self.extra["default"]}
        elif is_body and not self.is_required and self.default is not UNSET:
            more["default"] = _shown_default(self)
        if is_body and self.extra.get("examples"):
            more["examples"] = self.extra["examples"]
        if self.extra.get("read_only"):
            more["readOnly"] = True
        return {**made, **more, **self.extra.get("schema", {})}

    def example(self) -> Any:
        if self.extra.get("examples"):
            return self.extra["examples"][0]
        if self.is_required or self.default is UNSET:
            return self.kind.sample()
        return _shown_default(self)


def _shown_default(one: StructField) -> Any:
    if one.default is None:
        return None
    made = msgspec.to_builtins(one.default)
    made = list(made) if isinstance(made, tuple) else made
    return made if one.kind.is_plain else one.kind.plain(made)


def brief(kind: FieldKind, value: Any) -> Any:
    """`value` as JSON has it, without what the Structs in it would have by themselves."""
    match kind:
        case AnyKind(of=FieldKind() as of):
            return brief(of, value)
        case ListKind(of=of) if isinstance(value, list | tuple):
            return [brief(of, each) for each in value]
        case StructKind(of=of) if isinstance(value, Mapping):
            fields = table(of)
            return {
                name: brief(fields[name].kind, each) if name in fields else each
                for name, each in value.items()
                if name not in fields or fields[name].is_required or each != _shown_default(fields[name])
            }
        case _:
            return value


@cache
def table(struct: type[msgspec.Struct]) -> Mapping[str, StructField]:
    """The fields of a Struct by their names in JSON, in the order of their declaration."""
    info = cast("inspect.StructType", inspect.type_info(struct))
    defaults = {each.name: each for each in msgspec.structs.fields(struct)}
    found = {}
    for each in info.fields:
        if each.encode_name in getattr(struct, "without", ()):
            continue  # a Struct may do without a field of the one that it is made from
        base, extra, takes_null = _opened(each.type, {})
        declared = defaults[each.name]
        default = declared.default_factory() if declared.default_factory is not NODEFAULT else declared.default
        found[each.encode_name] = StructField(
            name=each.encode_name,
            attribute=each.name,
            kind=_kind(base, extra),
            is_required=each.required,
            takes_null=takes_null,
            may_be_unset=default is UNSET,
            default=None if default is NODEFAULT else default,
            extra=extra,
        )
    for other in getattr(struct, "beside", ()):  # an answer may show another Struct's fields among its own
        found |= {name: each for name, each in table(other).items() if name not in found}
    return found


def _opened(given: Any, extra: dict[str, Any]) -> tuple[Any, dict[str, Any], bool]:
    """The type inside of its metadata and its `| None`; with all that is said of it, the outer word first."""
    takes_null = False
    while True:
        if isinstance(given, inspect.Metadata):
            extra = {**(given.extra or {}), **{name: value for name, value in extra.items() if value not in ("", [])}}
            given = given.type
        elif isinstance(given, inspect.UnionType):
            rest = tuple(each for each in given.types if not isinstance(each, inspect.NoneType))
            takes_null = takes_null or len(rest) < len(given.types)
            if len(rest) > 1:
                return inspect.UnionType(rest), extra, takes_null
            given = rest[0]
        else:
            return given, extra, takes_null


def _kind(given: Any, extra: Mapping[str, Any]) -> FieldKind:
    said = str(extra.get("expected", ""))
    if extra.get("anything") and not isinstance(given, inspect.DictType):
        inner = {name: value for name, value in extra.items() if name != "anything"}
        return AnyKind(None if isinstance(given, inspect.AnyType) else _kind(given, inner))
    match given:
        case inspect.IntType() if extra.get("moment"):
            return TimeKind(minutes=bool(extra.get("minutes")))
        case inspect.IntType():
            low, high = extra.get("ge", -_LARGEST), extra.get("le", _LARGEST)
            return IntegerKind(
                low,
                high,
                said or Sentence("a whole number from {low} to {high}", low=low, high=high),
                bool(extra.get("exact")),
            )
        case inspect.FloatType():
            low, high = extra.get("ge", -1e15), extra.get("le", 1e15)
            size = Sentence("a number from {low} to {high}", low=f"{low:.16g}", high=f"{high:.16g}")
            return NumberKind(low, high, said or size)
        case inspect.StrType() if "choices" in extra:
            return _choice({str(one): str(one) for one in extra["choices"]}, said)
        case inspect.StrType():
            least, most = extra.get("min_length", 0), extra.get("max_length", 255)
            template = "a text of {least} to {most} characters" if least else "a text of at most {most} characters"
            size = Sentence(template, least=least, most=most)
            return TextKind(least, most, bool(extra.get("lines")), extra.get("pattern"), said or size)
        case inspect.BoolType():
            return BoolKind()
        case inspect.EnumType(cls=cls):
            return _choice({str(one.value): one for one in cls}, said)
        case inspect.LiteralType(values=values):
            return _choice({str(one): one for one in extra.get("choices", values)}, said)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return _items(given, item, extra, said)
        case inspect.DictType(value_type=value):
            base, inner, _ = _opened(value, {})
            of = AnyKind() if extra.get("anything") else _kind(base, inner)
            most = extra.get("max_length")
            template = "an object" if most is None else "an object with at most {most} names"
            return MapKind(of, most, said or Sentence(template, most=most))
        case inspect.StructType(cls=cls):
            return StructKind(cls, said or "an object")
        case inspect.UnionType(types=types) if all(
            isinstance(_opened(one, {})[0], inspect.StructType) for one in types
        ):
            tagged = [cast("inspect.StructType", _opened(one, {})[0]) for one in types]
            return TaggedKind(str(tagged[0].tag_field), {str(one.tag): one.cls for one in tagged}, said or "an object")
        case inspect.UnionType(types=types):
            opened = [_opened(one, dict(extra)) for one in types]
            kinds = tuple(_kind(base, inner) for base, inner, _ in opened)
            return UnionKind(kinds, said or reduce(_either, (kind.what for kind in kinds)))
        case inspect.AnyType():
            return JsonKind()
        case _:
            raise TypeError(f"no kind of field for {given!r}")


def _either(first: str, second: str) -> Sentence:
    return Sentence("{first}, or {second}", first=first, second=second)


def _choice(options: Mapping[str, Any], said: str) -> ChoiceKind:
    return ChoiceKind(options, said or Sentence("one of {words}", words=", ".join(options)))


def _items(given: Any, item: Any, extra: Mapping[str, Any], said: str) -> ListKind:
    base, inner, _ = _opened(item, {})
    of = _kind(base, {"min_length": 1, **inner} if isinstance(base, inspect.StrType) else inner)
    least, most = extra.get("min_length", 0), extra.get("max_length")
    what = "texts" if isinstance(of, TextKind) else "words" if isinstance(of, ChoiceKind) else "values"
    if least:
        template = "a list of {least} to {most} {noun}" if most else "a list of {least} or more {noun}"
    else:
        template = "a list of at most {most} {noun}" if most else "a list of {noun}"
    into = list if isinstance(given, inspect.ListType) else tuple
    if extra.get("is_one") and isinstance(of, ChoiceKind):
        said = said or Sentence("one or more of {words}", words=", ".join(of.options))
    return ListKind(
        of, least, most, said or Sentence(template, least=least, most=most, noun=what), into, bool(extra.get("is_one"))
    )


def read(struct: type[S], given: Mapping[str, Any]) -> S:
    """The Struct that `given` says. InvalidArgument names every problem."""
    problems = Problems()
    found = read_into(struct, given, ReadContext(problems))
    problems.finish()
    return found


def read_into(struct: type[S], given: Mapping[str, Any], at: ReadContext, *, besides: Collection[str] = ()) -> S:
    """As `read`, but the problems are left with `at`: the caller adds its own checks, and then finishes.

    After a problem the Struct has values of the right types. `besides` are fields that are read elsewhere.
    """
    values = read_values(struct, given, at, besides=besides)
    for name, each in table(struct).items():
        if each.is_required and each.attribute not in values:
            what = each.extra.get("missing") or each.kind.what
            at.wrong(name, "is missing; expected {what}", what=what)
            values[each.attribute] = each.kind.sample()
    return struct(**values)


def read_values(
    struct: type[msgspec.Struct], given: Mapping[str, Any], at: ReadContext, *, besides: Collection[str] = ()
) -> dict[str, Any]:
    """The values that are given, by attribute; what is absent, or null without meaning something by it, is not there.

    For callers with defaults of their own.
    """
    fields = table(struct)
    values: dict[str, Any] = {}
    known = 0
    for name, each in fields.items():
        value = given.get(name, UNSET)
        if value is UNSET:
            continue
        known += 1
        if each.extra.get("read_only"):
            continue
        if value is None:
            if each.takes_null or isinstance(each.kind, JsonKind):
                values[each.attribute] = None
        else:
            values[each.attribute] = each.kind.read(value, at, name)
    if known < len(given) and not getattr(struct, "takes_more", False):
        _refuse_unknown(struct, given, [*fields, *besides], at)
    return values


def _refuse_unknown(struct: type[msgspec.Struct], given: Mapping[str, Any], known: list[str], at: ReadContext) -> None:
    """No more of them than an answer names: each costs a comparison with every field that there is."""
    what = getattr(struct, "noun", struct.__name__)
    unknown = (name for name in given if name not in known)
    for name in islice(unknown, MOST_PROBLEMS - len(at.problems.found)):
        text = str(name)[:SHOWN]
        near = [each for each in known if each.startswith(f"{text}_")] or [
            *(each for each in known if each.endswith(f"_{text}")),
            *get_close_matches(text, known, 1),
        ]
        template = "is not a field of {noun}; did you mean {near}?" if near else "is not a field of {noun}"
        at.wrong(text, template, noun=what, near=near[0] if near else "")


def from_query(struct: type[msgspec.Struct], items: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The parameters of a query string, as JSON would have them. An empty text is as good as none."""
    fields = table(struct)
    given: dict[str, Any] = {}
    for name, text in items:
        kind = fields[name].kind if name in fields else None
        if isinstance(kind, ListKind):
            given.setdefault(name, []).extend(kind.from_text(text))
        elif text != "":
            given[name] = text if kind is None else kind.from_text(text)
    return given


def component_of(struct: type[msgspec.Struct]) -> str:
    """The name of a Struct's schema: `component` of the class itself, or the name of the class."""
    return str(vars(struct).get("component", struct.__name__))


def list_of(component: str, item: type[msgspec.Struct], *beside: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """An answer with `items`, and the fields of the Structs `beside` them."""
    said = {"component": component, "beside": beside}
    return msgspec.defstruct(component, [("items", GenericAlias(list, (item,)))], namespace=said, frozen=True)


def schema(struct: type[msgspec.Struct], *, is_body: bool) -> Schema:
    """The Struct as JSON Schema. A body may leave out what has a default, and has no other fields; an answer shows all."""
    fields = table(struct)
    properties = {name: each.schema(is_body=is_body) for name, each in fields.items()}
    required = [name for name, each in fields.items() if (each.is_required if is_body else not each.may_be_unset)]
    if struct.__struct_config__.tag is not None:
        tag = str(struct.__struct_config__.tag_field)
        properties = {tag: {"const": struct.__struct_config__.tag}, **properties}
        required = [tag, *required]
    made: Schema = {"type": "object", "properties": properties, "required": required}
    return {**made, "additionalProperties": False} if is_body and not getattr(struct, "takes_more", False) else made


def reached(struct: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    """The Struct, and all that its schema refers to."""
    found, waiting = {struct: None}, [struct]
    while waiting:
        one = waiting.pop()
        yield one
        fresh = [inner for each in table(one).values() for inner in each.kind.structs() if inner not in found]
        found |= dict.fromkeys(fresh)
        waiting += dict.fromkeys(fresh)


def example(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """A whole object, from the examples and defaults of its fields; or the `example` of the class."""
    whole = getattr(struct, "example", None)
    if whole is not None:
        return dict(whole)
    tag = struct.__struct_config__.tag
    made: dict[str, Any] = {} if tag is None else {str(struct.__struct_config__.tag_field): tag}
    return {**made, **{name: each.example() for name, each in table(struct).items() if not each.may_be_unset}}


def plain(struct: msgspec.Struct) -> dict[str, Any]:
    """A Struct as an answer shows it: moments in RFC 3339."""
    return _plain_fields(type(struct), msgspec.to_builtins(struct))


def filled(struct: type[S], source: object, **values: Any) -> S:
    """The Struct with these values; its other fields are the attributes of `source` of the same names."""
    rest = {name: getattr(source, name) for name in struct.__struct_fields__ if name not in values}
    return struct(**rest, **values)


def _plain_fields(struct: type[msgspec.Struct], made: dict[str, Any]) -> dict[str, Any]:
    for name, kind in _not_plain(struct):
        if made.get(name) is not None:
            made[name] = kind.plain(made[name])
    return made


@cache
def _not_plain(struct: type[msgspec.Struct]) -> list[tuple[str, FieldKind]]:
    return [(name, each.kind) for name, each in table(struct).items() if not each.kind.is_plain]
