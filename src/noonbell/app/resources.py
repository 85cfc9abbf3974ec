"""What `app.provide` gives to handlers: by its name, or by its type."""

from __future__ import annotations

from typing import Any

from noonbell.errors import NotFound


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
        raise NotFound(
            f"nothing was provided as {said}; app.provide(…) does that, before the app runs or in its lifespan"
        )
