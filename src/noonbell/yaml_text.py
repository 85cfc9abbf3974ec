"""YAML, read and written in one way: in files of settings and tasks, in the editor, and on pages.

Also a program: a text on its input, the JSON on its output, or what is wrong with it and exit code 1. Its argument is the
processor time that it may use, in seconds. Reading YAML costs seconds for a megabyte, and for some texts hours: a number of
400,000 parts. The interpreter's lock is held meanwhile, so a thread does not help the event loop; a separate process
does, and can be ended. This module imports nothing of ours, so that it starts quickly.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator
from typing import Any, Final

import yaml

NEITHER: Final = "is neither YAML nor JSON: {error}"
TWICE: Final = "line {line}: {key} is given twice; keep one"
"""What is wrong with a text. Pages tell it in the reader's language by these templates."""

_PARSER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


_BOOL: Final = "tag:yaml.org,2002:bool"
_TEXT: Final = "tag:yaml.org,2002:str"


class _Loader(_PARSER):  # type: ignore[misc, valid-type]
    """Moments stay text, as in JSON. A key that stands twice in a mapping is refused: one of them would win in silence."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the name and type are yaml's
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in _PARSER.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is not None and key != "<<" and key in seen:
                raise ValueError(TWICE.format(line=key_node.start_mark.line + 1, key=repr(key)))
            seen.add(key)
            if key_node.tag == _BOOL:
                key_node.tag = _TEXT  # a key is a text, as in JSON: `on` is the name of a field
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    def ignore_aliases(self, data: Any) -> bool:
        """Pages refuse a text that refers to itself."""
        del data
        return True


def read(text: str) -> Any:
    """The one document of a text. ValueError says what is wrong with it."""
    found = list(_documents(text))
    if len(found) > 1:
        raise ValueError("has several documents; expected one")
    return found[0] if found else None


def read_all(text: str) -> list[Any]:
    """Each document of a text that is not empty."""
    return [each for each in _documents(text) if each is not None]


def write(value: Any, width: int = 80) -> str:
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width)
    return text


def to_json(text: str) -> str:
    """A text of a caller's as JSON. An alias is refused: a few lines of them can stand for billions of values."""
    try:
        has_alias = "*" in text and any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, _PARSER))
    except yaml.YAMLError as error:
        raise ValueError(_problem(error)) from None
    if has_alias:
        raise ValueError("has an alias (*name); write out what it stands for")
    value = read(text)
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, RecursionError):
        raise ValueError("has a value that JSON cannot represent") from None


def _documents(text: str) -> Iterator[Any]:
    _check_depth(text)
    loader = _Loader(text)
    try:
        while loader.check_data():
            yield loader.get_data()
    except yaml.YAMLError as error:
        raise ValueError(_problem(error)) from None
    except RecursionError:
        raise ValueError("is nested too deep") from None
    finally:
        loader.dispose()


_DEEPEST: Final = 1_000


def _check_depth(text: str) -> None:
    """The C loader calls itself for each level, and ends the process where the stack does; its parser does not.

    A level is a bracket, or begins at a column of its own: a list may stand at that of its key.
    """
    columns = max(map(len, text.splitlines()), default=0)
    if 2 * columns + text.count("[") + text.count("{") < _DEEPEST:
        return
    depth = 0
    try:
        for event in yaml.parse(text, _PARSER):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:
                raise ValueError("is nested too deep")
    except yaml.YAMLError as error:
        raise ValueError(_problem(error)) from None


def _problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}: " if mark else ""
    said = getattr(error, "problem", None) or str(error)
    return NEITHER.format(error=f"{where}{' '.join(said.split())[:300]}")


def _main() -> int:
    seconds = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    try:
        sys.stdout.buffer.write(to_json(sys.stdin.buffer.read().decode()).encode("utf-8", "surrogatepass"))
    except ValueError as error:
        sys.stdout.buffer.write(str(error).encode("utf-8", "replace"))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
