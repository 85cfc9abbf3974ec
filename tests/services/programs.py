"""Programs that tests call (promtool, sqlite3, pg_dump …): found, else installed by `apt-get` where that may be, else told as missing."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path

from services import Service, Services, launch, locked


def program(services: Services, name: str, package: str) -> Service:
    """`url` is its path. Noted down with the servers, so that a missing one is told with them."""
    note = services.folder / f"{name}.json"
    with locked(services.folder / f"{name}.lock"):
        if note.exists():
            return Service(**json.loads(note.read_text()))
        service = obtain(name, package)
        note.write_text(json.dumps(asdict(service)))
        return service


def obtain(name: str, package: str) -> Service:
    try:
        try:
            path = launch.binary(name)
        except FileNotFoundError as missing:
            with locked(Path(tempfile.gettempdir()) / "noonbell-test-apt.lock"):
                launch.install_package(package, missing)
            path = launch.binary(name)
    except (launch.Unavailable, FileNotFoundError) as why:
        return Service(name, None, str(why))  # type: ignore[arg-type]
    return Service(name, str(path), f"found {path}")  # type: ignore[arg-type]
