"""YAML as JSON. Also a program: a text on its input, the JSON on its output, or what is wrong with it and exit code 1.
Its argument is the processor time that it may use, in seconds.

Reading YAML costs seconds for a megabyte, and for some texts hours: a number of 400,000 parts, lists that open and never
close. The interpreter's lock is held meanwhile, so a thread does not help the event loop; a process of its own does, and
can be ended. It imports nothing of ours, so that it starts quickly.
"""

from __future__ import annotations

import json
import resource
import sys
from datetime import date
from typing import Any, Final

import yaml

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def to_json(text: str) -> str:
    """ValueError says what is wrong. A text that refers to itself is refused: a few lines of that can stand for billions."""
    try:
        if "*" in text and any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, _LOADER)):
            raise ValueError("has an alias (*name); write out what it stands for")
        value = _loaded(text)
    except yaml.YAMLError as error:
        raise ValueError(f"is neither YAML nor JSON: {' '.join(str(error).split())[:300]}") from None
    except RecursionError:
        raise ValueError("is nested too deep") from None
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except (TypeError, RecursionError):
        raise ValueError("has a value that JSON cannot write") from None


def _loaded(text: str) -> Any:
    loader = _LOADER(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def _plain(value: Any) -> str:
    """YAML knows moments of its own; here they are text."""
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError


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
