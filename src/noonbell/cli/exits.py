"""Exit codes, and how an error is said. docs/reference/cli.md has the table for readers."""

from __future__ import annotations

import os
import sys
from typing import Final

from noonbell import errors
from noonbell.errors import NoonbellError

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NOT_FOUND: Final = 3
EXIT_FORBIDDEN: Final = 4
EXIT_CONFLICT: Final = 5
EXIT_WITHOUT_SUCCESS: Final = 6
EXIT_STILL_GOING: Final = 7
EXIT_UNREACHABLE: Final = 8
EXIT_INTERRUPTED: Final = 130

MEANINGS: Final = {
    0: "done",
    EXIT_FAILED: "failed; for a comparison: differences found",
    EXIT_USAGE: "wrong usage, or a setting that cannot be",
    EXIT_NOT_FOUND: "not found",
    EXIT_FORBIDDEN: "authentication or permission",
    EXIT_CONFLICT: "conflict: the version changed, a name or an address is taken",
    EXIT_WITHOUT_SUCCESS: "the awaited run ended without success",
    EXIT_STILL_GOING: "waiting timed out, the run is still going",
    EXIT_UNREACHABLE: "the server or the store is unreachable",
    EXIT_INTERRUPTED: "interrupted",
}

_CODES: Final[dict[type[NoonbellError], int]] = {
    errors.SettingsError: EXIT_USAGE,
    errors.NotFound: EXIT_NOT_FOUND,
    errors.Unauthorized: EXIT_FORBIDDEN,
    errors.Forbidden: EXIT_FORBIDDEN,
    errors.AlreadyExists: EXIT_CONFLICT,
    errors.ConcurrencyLimit: EXIT_CONFLICT,
    errors.InvalidState: EXIT_CONFLICT,
    errors.LeaseLost: EXIT_CONFLICT,
    errors.VersionConflict: EXIT_CONFLICT,
    errors.SchemaMismatch: EXIT_FAILED,
    errors.StoreUnavailable: EXIT_UNREACHABLE,
}


def exit_code(error: NoonbellError) -> int:
    return next((_CODES[kind] for kind in type(error).__mro__ if kind in _CODES), EXIT_FAILED)


def say_error(message: str) -> None:
    """One line on stderr, whatever the message holds."""
    line = "".join(char if char.isprintable() else " " for char in message.replace("\n", "; "))
    mark = "\x1b[31merror:\x1b[0m" if sys.stderr.isatty() and "NO_COLOR" not in os.environ else "error:"
    print(f"{mark} {line}", file=sys.stderr)
