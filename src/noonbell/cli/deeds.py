"""The audit line of a command that works on the store itself."""

from __future__ import annotations

import contextlib
import getpass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noonbell.model.access import Deed

ACTOR = "command line"


def deed(action: str, subject: str, **details: Any) -> Deed:
    """No token was shown: the line has the user of the operating system instead, where it has a name."""
    from noonbell.model.access import Deed

    with contextlib.suppress(OSError, KeyError, ImportError):
        details["user"] = getpass.getuser()
    return Deed(actor=ACTOR, action=action, subject=subject, details={"through": ACTOR, **details})
