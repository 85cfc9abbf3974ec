"""`python -m bench [SECTION]`: progress on standard error, markdown tables on standard output."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench import burst, cli, events, hostile, http, lag, pages, passes, simulate, speed, stores
from bench.rounds import progress


@dataclass(frozen=True)
class Asked:
    quick: bool
    rounds: int
    only: str | None
    """Of `speed`: the one stage to measure."""


SECTIONS: dict[str, tuple[str, Callable[[Asked], str]]] = {
    "speed": ("Speed beside the peers", lambda a: speed.table(a.only, quick=a.quick, rounds=a.rounds)),
    "cron": ("Cron: next slot and parse", lambda _: cron()),
    "stores": ("Stores", lambda a: stores.tables(stores.QUICK if a.quick else stores.FULL, a.rounds)),
    "passes": (
        "Planning pass with nothing due",
        lambda a: passes.table(passes.QUICK if a.quick else passes.FULL, a.rounds),
    ),
    "lag": ("Lag at the target", lambda a: lag.table(lag.QUICK if a.quick else lag.FULL)),
    "burst": ("A burst of HTTP tasks in one second", lambda a: burst.table(burst.QUICK if a.quick else burst.FULL)),
    "http": ("HTTP runs beside the plain client", lambda a: http.table(http.QUICK if a.quick else http.FULL, a.rounds)),
    "events": ("Events", lambda a: events.table(events.QUICK if a.quick else events.FULL, a.rounds)),
    "pages": ("Every list page", lambda a: pages.table(pages.QUICK if a.quick else pages.FULL, a.rounds)),
    "simulate": ("A year of schedules, simulated", lambda a: simulate.table(quick=a.quick)),
    "hostile": ("Hostile bodies, and `livez` meanwhile", lambda _: hostile.table()),
    "cli": ("The command line", lambda _: cli.table()),
}
"""By name: the title, and what measures it and makes the table."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Noonbell beside its peers and the raw drivers."
    )
    parser.add_argument("what", nargs="?", default="all", choices=[*SECTIONS, "all"])
    parser.add_argument("--quick", action="store_true", help="small samples, one round: a look, not a measurement")
    parser.add_argument("--rounds", type=int, help="rounds of each contender (3; with --quick 1)")
    parser.add_argument("--only", choices=speed.STAGES, help="of speed, this stage")
    args = parser.parse_args()
    if args.only and args.what != "speed":
        parser.error("--only goes with speed: python -m bench speed --only STAGE")
    asked = Asked(args.quick, args.rounds or (1 if args.quick else 3), args.only)
    # Ended from outside, leave through the `finally` blocks that drop the databases.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: stopped"))

    start = time.monotonic()
    print(head(asked.rounds), flush=True)
    for name, (title, measured) in SECTIONS.items():
        if args.what in (name, "all"):
            section(title, measured(asked))
    progress(f"done in {time.monotonic() - start:.0f} s")


def section(title: str, text: str) -> None:
    print(f"\n## {title}\n\n{text}", flush=True)


def cron() -> str:
    from bench.cron import table

    progress("cron: next slot and parse")
    return table()


def head(rounds: int) -> str:
    command = " ".join(["python -m bench", *sys.argv[1:]])
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    measured = f"`{command}`, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC. {rounds} round(s), the contenders in turn; "
    measured += "median (lowest–highest). Ratios are taken round by round."
    machine = f"{os.cpu_count()} × {processor()}, {memory:.0f} GiB, {platform.system()} {platform.release()}, "
    machine += f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f} at the start. "
    machine += "Databases, clients and workers share the processors."
    return f"# Bench\n\n{measured}\n\n{machine}"


def processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
