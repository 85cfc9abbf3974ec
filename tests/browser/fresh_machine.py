"""A machine on which nothing is and which reaches nothing: `noonbell dev` and a browser in a network of their own.

Run as `unshare -n python fresh_machine.py BROWSER FOLDER`. Prints the seconds from the command to the first green run on
the dashboard.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from acceptance.harness import COMMAND, until
from integration.targets.alone import raise_loopback, stay_at_home

LIMIT = 60.0


def reaches_nobody() -> bool:
    """A route to the world would be found here."""
    with contextlib.suppress(OSError), socket.create_connection(("192.0.2.1", 80), 2):
        return False
    return [name for _, name in socket.if_nameindex()] == ["lo"]


def main(browser: str, folder: Path) -> None:
    stay_at_home()
    raise_loopback()
    if not reaches_nobody():
        raise SystemExit("there is a network")
    log = folder / "dev.log"
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"}
    began = time.monotonic()
    with log.open("wb") as out:
        dev = subprocess.Popen(
            [COMMAND, "dev", "--port", "0"], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        found = until(lambda: re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text()), "dev to say where it is", LIMIT)
        with sync_playwright() as playwright:
            started = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
            page = started.new_page(locale="en-GB")
            page.goto(f"{found[0]}/runs", timeout=LIMIT * 1000)
            expect(page.get_by_role("cell", name="Succeeded").first).to_be_visible(timeout=LIMIT * 1000)
            sys.stdout.write(f"{time.monotonic() - began:.1f}")
            started.close()
    finally:
        dev.send_signal(signal.SIGTERM)
        dev.wait(30)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
