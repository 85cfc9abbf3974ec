"""The garbage collector of a process that serves: it looks at what comes and goes, not at what stays.

Nothing on the way of a run makes a cycle, so nearly everything is freed by its count alone. By default the collector
looks anyway, every few hundred objects, and from time to time at all that was ever imported: a tenth of a busy process.
"""

from __future__ import annotations

import gc

_YOUNG = 50_000
"""New objects between two looks at the young ones: more than the runs that are under way hold at any time."""


def settle_down() -> None:
    """Call once, when everything is built: what is there now stays, and is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, 20, 20)
