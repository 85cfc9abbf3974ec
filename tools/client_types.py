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
from collections.abc import Iterable, Mapping, Sequence
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
from noonbell.service import Services
from noonbell.service.calls import CallWrite
from noonbell.service.task_fields import Rules
from noonbell.settings import Settings

Struct = type[msgspec.Struct]

TYPES = Path(__file__).parents[1] / "src" / "noonbell" / "client" / "types"
MODULES = {
    "tasks": ("tasks", "schedules", "calendars"),
    "task_inputs": ("what is given of tasks, schedules and calendars",),
    "runs": ("runs", "stats", "callbacks", "calls", "queues", "workers", "worker protocol"),
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
_LONG_CHOICES = 60
"""Characters of the words of an enum from which on they get a name."""
_CHOICES = re.compile(r"Literal\[[^\[\]]*\]")
_RESERVED = frozenset({"body", "query", "if_match"})
"""Names that a method has a meaning of its own for."""


def endpoints() -> list[Endpoint]:
    nothing: Any = object()
    services = Services(nothing, nothing, Rules.of(Settings()), nothing, nothing)
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
    """A TypedDict: the type of each key, `NotRequired[…]` of those that may be left out."""

    name: str
    types: Mapping[str, str]
    odd: Mapping[str, str] = field(default_factory=dict)
    """Keys that Python has no word for."""
    base: str = ""
    """The TypedDict that it extends."""
    choices: str = ""
    """Of an enum that several fields have: it is no TypedDict, but the name of these words."""


def _shapes(structs: Mapping[Struct, str], *, is_input: bool) -> list[Shape]:
    called = {struct for each in endpoints() for struct in (each.body, each.query) if struct is not None}
    found = []
    for struct, name in structs.items():
        types: dict[str, str] = {}
        odd: dict[str, str] = {}
        tag = struct.__struct_config__.tag
        if tag is not None:
            types[str(struct.__struct_config__.tag_field)] = f"Literal[{json.dumps(tag)}]"
        for key, each in table(struct).items():
            if is_input and each.extra.get("read_only"):
                continue
            is_odd = keyword.iskeyword(key)
            word = f"{key}_" if is_odd and is_input and struct in called else key
            said = _type(each, structs, is_input=is_input)
            may_lack = (not each.is_required) if is_input else each.may_be_unset
            (odd if is_odd and word == key else types)[word] = f"NotRequired[{said}]" if may_lack else said
        found.append(Shape(name, types, odd))
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
    shown, given = answers(), inputs()
    shapes = [*_shapes(shown, is_input=False), *_shapes(given, is_input=True)]
    (whole,) = (shape for shape in shapes if shape.name == given[CallWrite])
    rest = {key: said for key, said in whole.types.items() if key != "url"}
    shapes = _with_bases(_with_choices([*shapes, Shape("CallOptionsInput", rest)]))
    roots: dict[str, set[str]] = {home: set() for home in MODULES}
    tags = {tag: home for home, tags in MODULES.items() for tag in tags}
    for each in endpoints():
        home = tags[each.tag.lower()]
        roots[home] |= _names((each.answer,), shown)
        roots[_APART.get(home, home)] |= _names((each.body, each.query), given)
    roots[tags["calls"]].add("CallOptionsInput")
    homes = _placed({shape.name: _class(shape) for shape in shapes}, roots)
    return {home: _module(home, homes) for home in homes}


def _names(structs: Iterable[Struct | None], names: Mapping[Struct, str]) -> set[str]:
    return {names[each] for struct in structs if struct is not None for each in reached(struct)}


def _placed(texts: Mapping[str, str], roots: Mapping[str, set[str]]) -> dict[str, dict[str, str]]:
    """The types of each module: in alphabetic order, but each after those that it names, which stand in the first module that
    needs them.
    """
    homes: dict[str, dict[str, str]] = {home: {} for home in roots}
    done: set[str] = set()

    def place(name: str, home: str) -> None:
        if name in done:
            return
        done.add(name)
        for each in dict.fromkeys(re.findall(r"\w+", texts[name])):
            if each in texts:
                place(each, home)
        homes[home][name] = texts[name]

    for home, names in roots.items():
        for name in sorted(names):
            place(name, home)
    return homes


def _with_choices(shapes: Sequence[Shape]) -> list[Shape]:
    """The words of an enum get a name where several fields have them and they take more than a few."""
    uses = Counter(said for shape in shapes for types in shape.types.values() for said in _CHOICES.findall(types))
    names = {said: name for said, name in _choices().items() if len(said) >= _LONG_CHOICES and uses[said] > 1}

    def named(types: Mapping[str, str]) -> dict[str, str]:
        return {key: _CHOICES.sub(lambda each: names.get(each[0], each[0]), said) for key, said in types.items()}

    return [
        *(Shape(name, {}, choices=said) for said, name in names.items()),
        *(replace(shape, types=named(shape.types)) for shape in shapes),
    ]


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


def _module(home: str, homes: Mapping[str, Mapping[str, str]]) -> str:
    text = "\n\n".join(homes[home].values())
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
    for other, types in homes.items():
        used = sorted(name for name in words & types.keys() if other != home)
        lines += [f"from noonbell.client.types.{other} import {', '.join(used)}"] if used else []
    path = TYPES / f"{home}.py"
    return formatted(sorted_imports("\n".join([*lines, "", text]), path), path)


Fields = frozenset[tuple[str, str]]


def _with_bases(shapes: Sequence[Shape]) -> list[Shape]:
    """A type that has all fields of another extends it, and what several have alike is a type of its own: always where that
    saves the most lines. Each has one base at most, and answers and inputs have none in common.
    """
    whole = {shape.name: frozenset(shape.types.items()) for shape in shapes if not shape.choices}
    left, found = dict(whole), {shape.name: shape for shape in shapes}
    while True:
        saved, shared, names = max(
            (
                _saved(shared, left, whole, found, ending)
                for ending in ("Input", "Json")
                for shared in _alike(left, ending)
            ),
            key=lambda each: (each[0], sorted(each[1])),
            default=(0, frozenset(), []),
        )
        if saved <= 0:
            return list(found.values())
        base = next((name for name in names if whole[name] == shared and not found[name].odd), "")
        if not base:
            base = _name_of_shared(names, found)
            types = {key: said for key, said in found[names[0]].types.items() if (key, said) in shared}
            found[base], whole[base], left[base] = Shape(base, types), shared, shared
        for name in names:
            if name != base:
                left[name] -= shared
                own = {key: said for key, said in found[name].types.items() if (key, said) in left[name]}
                found[name] = replace(found[name], types=own, base=base)


def _alike(left: Mapping[str, Fields], ending: str) -> set[Fields]:
    """What two of them have alike."""
    many = [fields for name, fields in left.items() if name.endswith(ending) and len(fields) >= _LEAST_SHARED]
    both = {one & other for place, one in enumerate(many) for other in many[place + 1 :]}
    return {fields for fields in both if len(fields) >= _LEAST_SHARED}


def _saved(
    shared: Fields, left: Mapping[str, Fields], whole: Mapping[str, Fields], found: Mapping[str, Shape], ending: str
) -> tuple[int, Fields, list[str]]:
    """How many lines a base with these fields saves, and the types that have them."""
    names = [name for name, own in left.items() if shared <= own and name.endswith(ending) and not found[name].base]
    stands = any(whole[name] == shared and not found[name].odd for name in names)
    return (len(names) - 1) * len(shared) - (0 if stands else 1), shared, names


def _name_of_shared(names: Sequence[str], taken: Mapping[str, Shape]) -> str:
    """After the shortest of those that extend it."""
    ending = _ENDING.search(names[0])
    stems = (_ENDING.sub("", name) for name in sorted(names, key=lambda name: (len(name), name)))
    wanted = (f"{stem}Fields{'' if ending is None else ending[1]}" for stem in stems)
    return next(name for name in wanted if name not in taken)


_ENDING = re.compile(r"(?:Fields)?(Input|Json)$")


def _class(shape: Shape) -> str:
    if shape.choices:
        return f"{shape.name}: TypeAlias = {shape.choices}\n"
    parents, before = [shape.base] if shape.base else [], ""
    if shape.odd:
        parents.insert(0, f"_{shape.name}")
        odd = ", ".join(f'"{key}": {said}' for key, said in shape.odd.items())
        before = f'{parents[0]} = TypedDict("{parents[0]}", {{{odd}}})\n\n'
    said = [each.startswith("NotRequired[") for each in shape.types.values()]
    parents, own = parents or ["TypedDict"], dict(shape.types)
    if said and all(said):
        parents = [*parents, "total=False"]
        own = {key: each.removeprefix("NotRequired[").removesuffix("]") for key, each in own.items()}
    lines = [f"    {key}: {each}" for key, each in own.items()] or ["    pass"]
    return before + "\n".join([f"class {shape.name}({', '.join(parents)}):", *lines]) + "\n"


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
