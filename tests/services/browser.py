"""A browser for the tests: found, else installed.

1. the executable in `NOONBELL_TEST_CHROMIUM`, and then only that one;
2. Chromium on the PATH, best without its windows, or Chrome;
3. as root on a Debian-like system: the same, after `apt-get install`.

Without windows (`chromium-headless-shell`) it lays out, paints and runs scripts by the same code, and a page costs a quarter of the
processor time: the whole browser has a window, with a user of its own, for each context of a test.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import asdict
from pathlib import Path

from services import Service, Services, locked

VARIABLE = "NOONBELL_TEST_CHROMIUM"
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_INSTALL = ("install", "-y", "--no-install-recommends")


def browser(services: Services) -> Service:
    """`url` is the path of the executable. Noted down with the servers, so that a missing one is told with them."""
    note = services.folder / "browser.json"
    with locked(services.folder / "browser.lock"):
        if note.exists():
            return Service(**json.loads(note.read_text()))
        service = obtain()
        note.write_text(json.dumps(asdict(service)))
        return service


def obtain() -> Service:
    if path := os.environ.get(VARIABLE):
        there = shutil.which(path)
        return Service("browser", there, f"{VARIABLE}: {there or 'is no executable'}")  # type: ignore[arg-type]
    if (found := on_the_path()) is None and os.getuid() == 0 and shutil.which("apt-get"):
        with locked(Path(tempfile.gettempdir()) / "noonbell-test-apt.lock"):
            found = on_the_path() or install()
    story = f"found {found}" if found else f"no Chromium; install one, or name it in {VARIABLE}"
    return Service("browser", found, story)  # type: ignore[arg-type]


def on_the_path() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def install() -> str | None:
    for words in (["update"], [*_INSTALL, "chromium-headless-shell"], [*_INSTALL, "chromium"]):
        _apt(*words)
        if found := on_the_path():
            return found
    return None


def has_chinese_font() -> bool:
    """For pictures: one is installed where there is none, in the same way. The tests judge pages without it, too."""
    if not _chinese_fonts() and os.getuid() == 0 and shutil.which("apt-get"):
        with locked(Path(tempfile.gettempdir()) / "noonbell-test-apt.lock"):
            for words in (["update"], [*_INSTALL, "fontconfig", "fonts-wqy-microhei"]):
                if not _chinese_fonts():
                    _apt(*words)
    return bool(_chinese_fonts())


def _chinese_fonts() -> str:
    asked = ["fc-list", ":lang=zh", "family"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout if shutil.which("fc-list") else ""


def _apt(*words: str) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "-q", *words], env=environment, capture_output=True, check=False)
