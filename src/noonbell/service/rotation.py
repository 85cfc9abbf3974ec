"""Rotation: everything that is secret, sealed with the first key, in batches that nobody has to wait for.

Whoever dies half way through begins again: what is sealed with the first key already is left as it is. Nodes go on
meanwhile; one that still seals with another key would undo it, so all of them have the new key first before it starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from noonbell.errors import InvalidState, SettingsError
from noonbell.ports import SecretStore
from noonbell.sealing import SETTING, Sealer, is_sealed, key_id_of
from noonbell.service.secrets import turned

_BATCH: Final = 200
_MOST_PASSES: Final = 5


@dataclass(frozen=True, slots=True)
class Rotated:
    """How many rows were written."""

    tasks: int = 0
    versions: int = 0
    channels: int = 0

    @property
    def all(self) -> int:
        return self.tasks + self.versions + self.channels


async def rotate(store: SecretStore, sealer: Sealer, batch: int = _BATCH) -> Rotated:
    """SettingsError without a key; InvalidState, naming the key, for what cannot be opened: nothing of that batch is written."""
    if sealer.first is None:
        raise SettingsError.field(SETTING, "is not set; it names the file with the keys, the new one first")

    def reseal(fields: dict[str, Any]) -> dict[str, Any]:
        return turned(fields, lambda text, _: _resealed(text, sealer))

    total = Rotated()
    for _ in range(_MOST_PASSES):
        done = await _pass(store, reseal, batch)
        total = Rotated(total.tasks + done.tasks, total.versions + done.versions, total.channels + done.channels)
        if not done.all:
            return total
    raise InvalidState(
        "somebody seals with another key at the same time; give every node the same key file, and start again"
    )


def _resealed(text: str, sealer: Sealer) -> str:
    if is_sealed(text) and key_id_of(text) == sealer.first:
        sealer.open(text)  # one that cannot be opened is told now, while its key may still be found
        return text
    return sealer.seal(sealer.open(text))


async def _pass(store: SecretStore, reseal: Any, batch: int) -> Rotated:
    tasks = versions = 0
    after: int | None = -1
    while after is not None:
        after, written = await store.reseal_tasks(after, batch, reseal)
        tasks += written
    place: tuple[int, int] | None = (-1, 0)
    while place is not None:
        place, written = await store.reseal_versions(place, batch, reseal)
        versions += written
    return Rotated(tasks, versions, await store.reseal_channels(reseal))
