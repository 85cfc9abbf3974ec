"""`python -m bench [SECTION]`: progress on standard error, markdown tables on standard output."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from bench import burst, events, http, jobs, lag, passes, simulate, stores
from bench.rounds import progress

SECTIONS = ["cron", "stores", "passes", "lag", "burst", "http", "events", "simulate", "jobs", "all"]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Noonbell beside its peers and the raw drivers."
    )
    parser.add_argument("what", nargs="?", default="all", choices=SECTIONS)
    parser.add_argument("--quick", action="store_true", help="small samples, one round: a look, not a measurement")
    parser.add_argument("--rounds", type=int, help="rounds of each contender (3; with --quick 1)")
    args = parser.parse_args()
    rounds = args.rounds or (1 if args.quick else 3)
    # Ended from outside, leave through the `finally` blocks that drop the databases.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: stopped"))

    start = time.monotonic()
    print(head(rounds), flush=True)
    if args.what in ("cron", "all"):
        section("Cron: next slot and parse", cron())
    if args.what in ("stores", "all"):
        section("Stores", stores.tables(stores.QUICK if args.quick else stores.FULL, rounds))
    if args.what in ("passes", "all"):
        section("Planning pass with nothing due", passes.table(passes.QUICK if args.quick else passes.FULL, rounds))
    if args.what in ("lag", "all"):
        section("Lag at the target", lag.table(lag.QUICK if args.quick else lag.FULL))
    if args.what in ("burst", "all"):
        section("A burst of HTTP tasks in one second", burst.table(burst.QUICK if args.quick else burst.FULL))
    if args.what in ("http", "all"):
        section("HTTP runs beside the plain client", http.table(http.QUICK if args.quick else http.FULL, rounds))
    if args.what in ("jobs", "all"):
        section("Typed jobs, the whole way", jobs.tables(jobs.QUICK if args.quick else jobs.FULL, rounds))
    if args.what in ("simulate", "all"):
        section("A year of schedules, simulated", simulate.table(quick=args.quick))
    if args.what in ("events", "all"):
        section("Events", events.table(events.QUICK if args.quick else events.FULL, rounds))
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
