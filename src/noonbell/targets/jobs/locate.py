"""Finding an App by what somebody wrote: "module:attribute", "module", "path/to/file.py" or "path/to/file.py:attribute"."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from noonbell.errors import InvalidArgument
from noonbell.targets.jobs.handler import Handlers


def find_app(location: str, field: str = "--app") -> Any:
    """What has `handlers`: an App. Without an attribute: `app`, or the only one that the module has.

    Raises InvalidArgument for `field` where there is none. What the module itself raises goes through.
    """
    place, attribute = split(location)
    module = _from_file(Path(place), field) if place.endswith(".py") else _from_name(place, field)
    if attribute:
        found: Any = module
        for name in attribute.split("."):
            found = getattr(found, name, None)
        if not _is_app(found):
            raise InvalidArgument.field(field, f"is {location!r}, but {place} has no App called {attribute!r}")
        return found
    if _is_app(getattr(module, "app", None)):
        return module.app
    apps = {name: value for name, value in vars(module).items() if _is_app(value)}
    if len({id(app) for app in apps.values()}) != 1:
        some = f"has several: {', '.join(apps)}" if apps else "has none"
        raise InvalidArgument.field(field, f"is {location!r}, and {place} {some}; name an App as {place}:NAME")
    return next(iter(apps.values()))


def split(location: str) -> tuple[str, str]:
    """The module or file, and the attribute or nothing."""
    place, _, attribute = location.rpartition(":")
    return (place, attribute) if place else (attribute, "")


def _is_app(value: object) -> bool:
    return not isinstance(value, type) and isinstance(getattr(value, "handlers", None), Handlers)


def _from_name(name: str, field: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidArgument.field(
                field, f"is {name!r}, and there is no such module here; write MODULE:APP or a file's path"
            ) from None
        raise


def _from_file(path: Path, field: str) -> ModuleType:
    """As a module of its own name, with its folder to import from: as if Python had been started with it."""
    path = path.resolve()
    if not path.is_file():
        raise InvalidArgument.field(field, f"is {str(path)!r}, and there is no such file")
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InvalidArgument.field(field, f"is {str(path)!r}, which Python cannot import")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module
