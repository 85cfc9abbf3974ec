"""`python -m bench [SECTION]`: progress on standard error, markdown tables on standard output; `--write` keeps them."""

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
from types import ModuleType

from bench import (
    burst,
    cli,
    databases,
    events,
    growth,
    hostile,
    http,
    lag,
    moves,
    pages,
    passes,
    results,
    rollups,
    simulate,
    speed,
    stores,
)
from bench.rounds import progress
from bench.speed.scale import Scale


@dataclass(frozen=True)
class Asked:
    quick: bool
    rounds: int


SECTIONS: dict[str, tuple[str, Callable[[Asked], str]]] = {
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
    "rollups": ("Roll-ups", lambda a: rollups.table(rollups.QUICK if a.quick else rollups.FULL, a.rounds)),
    "pages": ("Every list page", lambda a: pages.table(pages.QUICK if a.quick else pages.FULL, a.rounds)),
    "simulate": ("A year of schedules, simulated", lambda a: simulate.table(quick=a.quick)),
    "hostile": ("Hostile bodies, and `livez` meanwhile", lambda _: hostile.table()),
    "cli": ("The command line", lambda _: cli.table()),
}
"""By name: the title, and what measures it and makes the table."""
STAGED: dict[str, tuple[str, ModuleType]] = {
    "speed": ("Speed beside the peers", speed),
    "growth": ("A store that grows", growth),
    "move": ("Moves to another database", moves),
}
"""Those whose stages are measured and written one by one."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Noonbell beside its peers and the raw drivers."
    )
    parser.add_argument("what", nargs="?", default="all", choices=[*STAGED, *SECTIONS, "all"])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small samples, one round: a look, not a measurement")
    size.add_argument(
        "--smoke", action="store_true", help="of speed, growth and move: next to nothing, to see whether it works"
    )
    parser.add_argument("--rounds", type=int, help="rounds of each contender (3; with --quick 1)")
    parser.add_argument("--only", metavar="STAGE", help="of speed, growth or move, this stage")
    parser.add_argument("--write", action="store_true", help="into docs/reference/bench-results.md too")
    args = parser.parse_args()
    if (args.only or args.smoke) and args.what not in STAGED:
        parser.error("--only and --smoke go with speed, growth and move: python -m bench speed --only STAGE")
    if args.only and args.only not in (stages := STAGED[args.what][1].STAGES):
        parser.error(f"--only of {args.what}: one of {', '.join(stages)}")
    scale = Scale.SMOKE if args.smoke else Scale.QUICK if args.quick else Scale.FULL
    if args.write and scale is not Scale.FULL:
        parser.error("--write keeps measurements: not those of --quick or --smoke")
    asked = Asked(args.quick, args.rounds or (3 if scale is Scale.FULL else 1))
    # Ended from outside, leave through the `finally` blocks that drop the databases.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: stopped"))

    start = time.monotonic()
    run = f"{command_line(asked.rounds)}\n\n{machine()}"
    print(f"# Bench\n\n{run}", flush=True)
    for name, (title, stages) in STAGED.items():
        if args.what in (name, "all"):
            measure_staged(title, stages, args.only, scale, asked.rounds, write=args.write)
    for name, (title, measured) in SECTIONS.items():
        if args.what in (name, "all"):
            text = measured(asked)
            section(title, text)
            if args.write:
                results.write(title, f"{run}\n\n{text}")
    progress(f"done in {time.monotonic() - start:.0f} s")


def measure_staged(title: str, stages: ModuleType, only: str | None, scale: Scale, rounds: int, *, write: bool) -> None:
    """Each stage is written when it has ended: what stops a later one does not undo it."""
    found: results.Lines = {}
    for name in stages.STAGES:
        if only in (None, name):
            found[name] = stages.measure(name, scale, rounds)
            if write:
                kept = results.of_stages(results.measured(results.FILE.read_text(), title), stages.STAGES)
                results.write(title, f"{machine()}\n\n{stages.table(kept | found)}")
    section(title, stages.table(found))


def section(title: str, text: str) -> None:
    print(f"\n## {title}\n\n{text}", flush=True)


def cron() -> str:
    from bench.cron import table

    progress("cron: next slot and parse")
    return table()


def command_line(rounds: int) -> str:
    command = " ".join(["python -m bench", *sys.argv[1:]])
    said = f"`{command}`, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC. {rounds} round(s), the contenders in turn; "
    return said + "median (lowest–highest). Ratios are taken round by round."


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    said = f"{os.cpu_count()} × {processor()}, {memory:.0f} GiB, {platform.system()} {platform.release()}, "
    said += (
        f"Python {platform.python_version()}{databases.server_versions()}, load {os.getloadavg()[0]:.1f} at the start. "
    )
    return said + "Databases, clients and workers share the processors."


def processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
