"""Whether a callback is to be believed: a target that knows its task's secret may sign with it what it calls back with."""

from __future__ import annotations

from dataclasses import dataclass

from noonbell import sealing
from noonbell.clock import SECOND, Instant
from noonbell.errors import NoonbellError
from noonbell.model.task import TaskSpec
from noonbell.sealing import Sealer
from noonbell.service.callbacks import Proof
from noonbell.service.secrets import opened
from noonbell.settings import Settings
from noonbell.targets import signing


@dataclass(frozen=True, slots=True)
class Judge:
    sealer: Sealer
    must_be_signed: bool
    """Where the task has a secret. Else a signature may be left out, but not be wrong."""

    @classmethod
    def of(cls, settings: Settings) -> Judge:
        return cls(sealing.from_file(settings.secrets.key_file), settings.callback.require_signature)

    def objection(self, proof: Proof | None, spec: TaskSpec, now: Instant) -> str:
        """Why it is not believed; nothing where it is. Without a secret there is nothing to judge by."""
        if not spec.secret:
            return ""
        if proof is None or signing.SIGNATURE not in proof.headers:
            return "it is not signed, and callback.require_signature asks for it" if self.must_be_signed else ""
        try:
            secret = opened(spec, self.sealer).secret or ""
            return signing.objection(secret, proof.headers, proof.body, now // SECOND)
        except NoonbellError as error:
            return f"its signature cannot be checked: {error.message}"
