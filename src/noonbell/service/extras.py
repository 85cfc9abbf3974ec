"""Clients that a kind of target cannot do without, and that an installation may lack."""

from __future__ import annotations

from importlib.util import find_spec

from noonbell.model.target_kind import TargetKind


def lacks_client(kind: TargetKind) -> bool:
    """Whether its runs cannot be carried out here."""
    return kind.client is not None and find_spec(kind.client) is None


def how_to_install(kind: TargetKind) -> str:
    return f"pip install 'noonbell[{kind.extra}]'"
