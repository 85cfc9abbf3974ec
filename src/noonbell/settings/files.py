"""A settings file as a plain mapping: YAML or TOML, by its ending."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

from noonbell.errors import SettingsError


def read_file(path: Path) -> dict[str, Any]:
    """Moments stay texts, as in JSON. Raises SettingsError, whose detail names the file."""
    name = str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SettingsError.field(name, "there is no such file; check --config") from None
    except IsADirectoryError:
        raise SettingsError.field(name, "is a folder; --config takes a YAML or TOML file") from None
    except OSError as error:
        raise SettingsError.field(name, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError.field(name, "is not UTF-8 text") from None
    if path.suffix == ".toml":
        found = _read_toml(name, text)
    elif path.suffix in (".yaml", ".yml", ".json"):
        found = _read_yaml(name, text)
    else:
        raise SettingsError.field(name, "has an unknown ending; takes .yaml, .yml, .json or .toml")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise SettingsError.field(name, "holds no mapping; expected sections such as server: and store:")
    return found


def _read_toml(name: str, text: str) -> Any:
    import tomllib

    try:
        return _with_texts_for_moments(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError.field(name, f"is not TOML: {error}") from None


def _with_texts_for_moments(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_texts_for_moments(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_texts_for_moments(item) for item in value]
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return value


def _read_yaml(name: str, text: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Safe YAML without dates; a key that stands twice is refused instead of winning in silence."""

        yaml_implicit_resolvers = {  # noqa: RUF012 - the name and type are yaml's
            first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[Any] = set()
            for key_node, _ in node.value:
                key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
                if key is not None and key != "<<" and key in seen:
                    raise SettingsError.field(
                        name, f"line {key_node.start_mark.line + 1}: {key!r} stands here twice; keep one"
                    )
                seen.add(key)
            return super().construct_mapping(node, deep)

    try:
        loader = Loader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or "cannot be read"
        raise SettingsError.field(name, f"is not YAML: {where}{problem}") from None
