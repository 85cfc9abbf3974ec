"""What the typed client is made of, from the endpoints' own declarations: its methods, and a TypedDict for each Struct.

An answer has all of its fields; a body or a query has those that the caller gives. `tools/reference.py` writes them into their files.
"""

from __future__ import annotations

import json
import keyword
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from noonbell.api.app import all_endpoints
from noonbell.api.endpoint import BASE, Endpoint
from noonbell.fields import StructField, StructKind, TaggedKind, component_of, reached, table
from noonbell.fields.kinds import (
    AnyKind,
    BoolKind,
    ChoiceKind,
    FieldKind,
    IntegerKind,
    ListKind,
    MapKind,
    NumberKind,
    TextKind,
    TimeKind,
    UnionKind,
)
from noonbell.service import build
from noonbell.service.calls import CallBody
from noonbell.service.task_fields import Rules
from noonbell.settings import Settings

Struct = type[msgspec.Struct]

TYPES = Path(__file__).parents[1] / "src" / "noonbell" / "client" / "types"
MODULES = {
    "tasks": ("tasks", "schedules"),
    "task_inputs": ("what is given of tasks and schedules",),
    "runs": ("runs", "stats", "callbacks", "calls"),
    "workers": ("queues", "workers", "worker protocol", "calendars"),
    "others": ("jobs", "plans", "events", "subscriptions", "alerts", "bulk", "views", "access", "system"),
}
"""The tags of the endpoints that each module is for. A type that several of them use is in the first."""
_APART = {"tasks": "task_inputs"}
"""Modules that hold answers only, and where their inputs are."""

STREAMS = frozenset({"events"})
"""Endpoints whose methods are written by hand, in each client."""
_QUERIED = ("GET", "DELETE")
_LEAST_SHARED = 4
"""Fewer fields than this are not worth a base class."""
_MANY_SHARED = 10
"""From so many on, fields that no type has alone have a base class of their own."""
_LONG_CHOICES = 60
"""Characters of the words of an enum from which on they get a name."""
_CHOICES = re.compile(r"Literal\[[^\[\]]*\]")
_RESERVED = frozenset({"body", "query", "if_match"})
"""Names that a method has a meaning of its own for."""


def endpoints() -> list[Endpoint]:
    nothing: Any = object()
    services = build(nothing, nothing, Rules.of(Settings()), nothing, nothing)
    return all_endpoints(services, health=dict, hub=nothing, alerts=nothing, access=nothing, webhooks=nothing)


def answers() -> dict[Struct, str]:
    """The Structs of all answers, with the names of their TypedDicts."""
    return _named((each.answer for each in endpoints()), "Json")


def inputs() -> dict[Struct, str]:
    """The same of all bodies and queries."""
    found = [struct for each in endpoints() for struct in (each.body, each.query)]
    return _named(found, "Input")


def _named(structs: Iterable[Struct | None], ending: str) -> dict[Struct, str]:
    found = {each: None for struct in structs if struct is not None for each in reached(struct)}
    names = {struct: component_of(struct).removesuffix("Body") + ending for struct in found}
    return dict(sorted(names.items(), key=lambda item: item[1]))


@dataclass(frozen=True, slots=True)
class Shape:
    """A TypedDict: the type of each key, and which of them may be left out."""

    name: str
    types: Mapping[str, str]
    optional: frozenset[str]
    odd: Mapping[str, str] = field(default_factory=dict)
    """Keys that Python has no word for."""
    choices: str = ""
    """Of an enum that several fields have: it is no TypedDict, but the name of these words."""

    def holds(self, other: Shape) -> bool:
        """Whether all keys of the other are in this one, alike."""
        alike = all(self.types.get(key) == said for key, said in other.types.items())
        return alike and all((key in self.optional) == (key in other.optional) for key in other.types)


def _shapes(structs: Mapping[Struct, str], *, is_input: bool) -> list[Shape]:
    called = {struct for each in endpoints() for struct in (each.body, each.query) if struct is not None}
    found = []
    for struct, name in structs.items():
        types: dict[str, str] = {}
        odd: dict[str, str] = {}
        optional = set()
        tag = struct.__struct_config__.tag
        if tag is not None:
            types[str(struct.__struct_config__.tag_field)] = f"Literal[{json.dumps(tag)}]"
        for key, each in table(struct).items():
            if is_input and each.extra.get("read_only"):
                continue
            is_odd = keyword.iskeyword(key)
            word = f"{key}_" if is_odd and is_input and struct in called else key
            (odd if is_odd and word == key else types)[word] = _type(each, structs, is_input=is_input)
            if (not each.is_required) if is_input else each.may_be_unset:
                optional.add(word)
        found.append(Shape(name, types, frozenset(optional), odd))
    return found


def _type(each: StructField, names: Mapping[Struct, str], *, is_input: bool) -> str:
    said = _of_kind(each.kind, names, is_input=is_input)
    return f"{said} | None" if each.takes_null and said != "Any" else said


def _of_kind(kind: FieldKind, names: Mapping[Struct, str], *, is_input: bool) -> str:
    def inner(of: FieldKind) -> str:
        return _of_kind(of, names, is_input=is_input)

    match kind:
        case AnyKind(of=FieldKind() as of):
            return inner(of)
        case IntegerKind():
            return "int"
        case NumberKind():
            return "float"
        case TextKind() | TimeKind():
            return "str"
        case BoolKind():
            return "bool"
        case ChoiceKind(options=options):
            return f"Literal[{', '.join(json.dumps(option) for option in options)}]"
        case ListKind(of=of, is_one=is_one) if is_input:
            return f"Sequence[{inner(of)}] | {inner(of)}" if is_one else f"Sequence[{inner(of)}]"
        case ListKind(of=of):
            return f"list[{inner(of)}]"
        case MapKind(of=of):
            return f"{'Mapping' if is_input else 'dict'}[str, {inner(of)}]"
        case StructKind(of=of):
            return names[of]
        case TaggedKind(of=of):
            return " | ".join(names[each] for each in of.values())
        case UnionKind(kinds=kinds):
            return " | ".join(dict.fromkeys(inner(each) for each in kinds))
        case _:
            return "Any"


def type_modules() -> dict[str, str]:
    """The text of each module of `noonbell.client.types`, by its name."""
    shown = dict(zip(answers(), _shapes(answers(), is_input=False), strict=True))
    given = dict(zip(inputs(), _shapes(inputs(), is_input=True), strict=True))
    homes: dict[str, dict[str, Shape]] = {home: {} for home in MODULES}
    tags = {tag: home for home, tags in MODULES.items() for tag in tags}
    taken: set[Struct] = set()
    for each in sorted(endpoints(), key=lambda each: list(homes).index(tags[each.tag.lower()])):
        home = tags[each.tag.lower()]
        for struct in () if each.answer is None else reached(each.answer):
            if not any(shown[struct].name in others for others in homes.values()):
                homes[home][shown[struct].name] = shown[struct]
        for root in (each.body, each.query):
            for struct in () if root is None else reached(root):
                if struct not in taken:
                    homes[_APART.get(home, home)][given[struct].name] = given[struct]
                    taken.add(struct)
    whole = given[CallBody]
    rest = {key: said for key, said in whole.types.items() if key != "url"}
    homes[tags["calls"]]["CallOptionsInput"] = Shape("CallOptionsInput", rest, whole.optional)
    homes = _with_choices(homes)
    return {home: _module(home, homes) for home in homes}


def _with_choices(homes: Mapping[str, Mapping[str, Shape]]) -> dict[str, dict[str, Shape]]:
    """The words of an enum get a name where several fields have them and they take more than a few: in the first module of those."""
    names = {said: name for said, name in sorted(_choices().items()) if len(said) >= _LONG_CHOICES}
    uses = Counter(said for shapes in homes.values() for shape in shapes.values() for said in _choices_in(shape))
    found: dict[str, dict[str, Shape]] = {}
    for home, shapes in homes.items():
        found[home] = {}
        for shape in shapes.values():
            for said in _choices_in(shape):
                name = names.get(said, "")
                if name and uses[said] > 1 and not any(name in others for others in found.values()):
                    found[home][name] = Shape(name, {}, frozenset(), choices=said)
            types = {
                key: _CHOICES.sub(lambda each: names.get(each[0], each[0]) if uses[each[0]] > 1 else each[0], said)
                for key, said in shape.types.items()
            }
            found[home][shape.name] = replace(shape, types=types)
    return found


def _choices_in(shape: Shape) -> list[str]:
    return [said for types in shape.types.values() for said in _CHOICES.findall(types)]


def _choices() -> dict[str, str]:
    """The Literal of each enum of the model, with the enum's name."""
    structs = {*answers(), *inputs()}
    found: dict[str, str] = {}
    left = [each.kind for struct in structs for each in table(struct).values()]
    while left:
        match left.pop():
            case ChoiceKind(options=options) as kind if isinstance(next(iter(options.values())), Enum):
                enum = type(next(iter(options.values())))
                if len(enum) == len(options):
                    found[_of_kind(kind, {}, is_input=False)] = enum.__name__
            case AnyKind(of=FieldKind() as of) | ListKind(of=of) | MapKind(of=of):
                left.append(of)
            case UnionKind(kinds=kinds):
                left += kinds
    return found


def _module(home: str, homes: Mapping[str, Mapping[str, Shape]]) -> str:
    text = _written(list(homes[home].values()))
    words = set(re.findall(r"\w+", text))
    typing = sorted(words & {"Any", "Literal", "NotRequired", "TypeAlias", "TypedDict"})
    lines = [
        f'"""JSON of the API: {", ".join(MODULES[home])}. Made by tools/reference.py from the declarations of the endpoints."""'
    ]
    # Without postponed annotations: they would hide from Python itself which keys may be left out.
    lines += [""]
    abstract = sorted(words & {"Mapping", "Sequence"})
    lines += [f"from collections.abc import {', '.join(abstract)}"] if abstract else []
    lines += [f"from typing import {', '.join(typing)}", ""]
    for other, shapes in homes.items():
        used = sorted(name for name in words & shapes.keys() if other != home)
        lines += [f"from noonbell.client.types.{other} import {', '.join(used)}"] if used else []
    path = TYPES / f"{home}.py"
    return formatted(sorted_imports("\n".join([*lines, "", text]), path), path)


def _written(shapes: list[Shape]) -> str:
    """In alphabetic order, but each after those that it names."""
    shapes = _with_shared(shapes)
    bases = {shape.name: _base(shape, shapes) for shape in shapes}
    by_name = {shape.name: shape for shape in shapes}
    done: dict[str, str] = {}

    def write(shape: Shape) -> None:
        if shape.name in done:
            return
        done[shape.name] = ""
        base = bases[shape.name]
        text = _class(shape, None if base is None else by_name[base])
        for name in dict.fromkeys(re.findall(r"\w+", text)):
            if name in by_name:
                write(by_name[name])
        del done[shape.name]
        done[shape.name] = text

    for shape in sorted(shapes, key=lambda shape: shape.name):
        write(shape)
    return "\n\n".join(done.values())


def _with_shared(shapes: list[Shape]) -> list[Shape]:
    """And those of the fields that two or more of them have alike, where that saves the most lines."""
    found = list(shapes)
    left = [shape for shape in shapes if _base(shape, shapes) is None and not shape.odd]
    while pairs := [(one, other) for one in left for other in left if one.name < other.name]:
        one, other = max(pairs, key=lambda pair: (len(_alike(*pair)), pair[0].name, pair[1].name))
        types = _alike(one, other)
        if len(types) < _MANY_SHARED:
            break
        name = f"{min(one.name, other.name, key=len).removesuffix('Input').removesuffix('Json')}Fields{_ending(one)}"
        shared = Shape(name, types, frozenset(types) & one.optional)
        if shared.name in {each.name for each in found}:
            break
        found.append(shared)
        left = [shared, *(shape for shape in left if not shape.holds(shared))]
    return found


def _alike(one: Shape, other: Shape) -> dict[str, str]:
    same = (key for key in one.types if key in other.types and (key in one.optional) == (key in other.optional))
    return {key: one.types[key] for key in same if one.types[key] == other.types[key]}


def _ending(shape: Shape) -> str:
    return "Input" if shape.name.endswith("Input") else "Json"


def _base(shape: Shape, shapes: list[Shape]) -> str | None:
    def is_less(other: Shape) -> bool:
        return (len(other.types), other.name) < (len(shape.types), shape.name) and not other.odd and not shape.odd

    fit = [each for each in shapes if len(each.types) >= _LEAST_SHARED and is_less(each) and shape.holds(each)]
    best = max(fit, key=lambda each: (len(each.types), each.name), default=None)
    return None if best is None else best.name


def _class(shape: Shape, base: Shape | None) -> str:
    own = {key: said for key, said in shape.types.items() if base is None or key not in base.types}
    if shape.choices:
        return f"{shape.name}: TypeAlias = {shape.choices}\n"
    parent, before = "TypedDict" if base is None else base.name, ""
    if shape.odd:
        parent = f"_{shape.name}"
        odd = ", ".join(f'"{key}": {_required(shape, key, said)}' for key, said in shape.odd.items())
        before = f'{parent} = TypedDict("{parent}", {{{odd}}})\n\n'
    lines = [f"    {key}: {_required(shape, key, said)}" for key, said in own.items()]
    return before + "\n".join([f"class {shape.name}({parent}):", *(lines or ["    pass"])]) + "\n"


def _required(shape: Shape, key: str, said: str) -> str:
    return f"NotRequired[{said}]" if key in shape.optional else said


def client_calls() -> str:
    """A method for each endpoint, by tag. The stream of events is a method of its own in each client."""
    by_tag: dict[str, list[str]] = {}
    shown, given = answers(), inputs()
    for each in endpoints():
        if each.name not in STREAMS:
            by_tag.setdefault(each.tag, []).append(_method(each, shown, given))
    return "\n\n".join("\n\n".join([f"    # {tag.capitalize()}", *made]) for tag, made in by_tag.items())


def _method(each: Endpoint, shown: Mapping[Struct, str], given: Mapping[Struct, str]) -> str:
    method = "POST" if "POST" in each.methods else each.methods[0]
    base = "" if each.base == BASE else f", base={json.dumps(each.base)}"
    words = {"id": "task" if each.base == BASE else "job"}
    places = [f"{words.get(place, place)}: int | str" for place in re.findall(r"\{(\w+)\}", each.path)]
    parameters = ["self", *places, *(["/"] if places else []), *_named_parameters(each, method, given)]
    answer = "str" if each.answer is None else f"types.{shown[each.answer]}"
    return "\n".join(
        [
            f'    @api_call("{method}", "{each.path}"{base})',
            f"    def {each.name}({', '.join(parameters)}) -> {answer}:",
            f'        """{each.summary}"""',
        ]
    )


def _named_parameters(each: Endpoint, method: str, given: Mapping[Struct, str]) -> list[str]:
    named = ["if_match: int | None = None"] if each.versioned else []
    spread = each.query if method in _QUERIED else each.body
    if method in _QUERIED and each.body is not None:
        named.append(f"body: types.{given[each.body]}")
    if method not in _QUERIED and each.query is not None:
        named.append(f"query: types.{given[each.query]} | None = None")
    if spread is not None and table(spread).keys() & _RESERVED:
        named.append(f"body: types.{given[spread]}")
        spread = None
    last = [] if spread is None else [f"**fields: Unpack[types.{given[spread]}]"]
    return [*(["*"] if named else []), *named, *last]


def formatted(text: str, path: Path) -> str:
    """As `ruff format` has it."""
    return _ruff(text, "format", "--quiet", "--stdin-filename", str(path), "-")


def sorted_imports(text: str, path: Path) -> str:
    return _ruff(text, "check", "--quiet", "--fix-only", "--select", "I", "--stdin-filename", str(path), "-")


def _ruff(text: str, *arguments: str) -> str:
    ruff = str(Path(sys.executable).with_name("ruff"))
    return subprocess.run([ruff, *arguments], input=text, capture_output=True, text=True, check=True).stdout
