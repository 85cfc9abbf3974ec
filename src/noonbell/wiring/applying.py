"""The App that a command names, imported, with what is wrong with it in words."""

from __future__ import annotations

import logging

from noonbell.app import App
from noonbell.errors import InvalidArgument, NoonbellError, SettingsError
from noonbell.targets.jobs.locate import find_app

log = logging.getLogger("noonbell")


def load_app(location: str) -> App:
    """`location`: "module:attribute" or "path.py:attribute", either without the attribute. Raises SettingsError."""
    try:
        app = find_app(location)
    except InvalidArgument as error:
        raise SettingsError(error.message, details=error.details) from None
    except NoonbellError as error:  # a declaration that cannot be: it says itself which
        raise SettingsError.field("--app", f"is {location!r}: {error.message}") from error
    except (Exception, SystemExit) as error:
        log.exception("%s cannot be imported", location)
        raise SettingsError.field(
            "--app", f"is {location!r}, which cannot be imported: {type(error).__name__}: {error}"
        ) from None
    if not isinstance(app, App):
        raise SettingsError.field("--app", f"is {location!r}, which is no App but {app!r}")
    return app
