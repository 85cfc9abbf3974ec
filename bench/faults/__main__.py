"""`python -m bench.faults`: every contender through the same kills; a table on standard output, `--write` into the docs."""

from __future__ import annotations

import argparse
import random
import secrets
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from bench import databases
from bench.__main__ import machine
from bench.faults import page, timeline
from bench.faults.account import account_of, by_slot
from bench.faults.contenders import Contender, contenders
from bench.faults.page import Entry
from bench.faults.processes import Processes
from bench.faults.target import Target
from bench.faults.timeline import Form
from bench.peers.cron.task import Settings
from bench.rounds import ROOT, progress

FOLDER = ROOT / "build" / "faults-peers"
"""The logs of targets and processes, kept until the next run of the same contender."""
_writing = threading.Lock()


@dataclass(frozen=True)
class Run:
    seed: int
    said: str
    """Of every contender, beside its settings."""
    machine: str | None
    """None: nothing is written into the page."""


def main() -> None:
    names = [each.name for each in contenders()]
    parser = argparse.ArgumentParser(
        prog="python -m bench.faults", description="Schedulers under kill -9, side by side."
    )
    parser.add_argument("--only", action="append", choices=names, help="this one; may be repeated")
    parser.add_argument("--quick", action="store_true", help="few schedules, a short time: a look, not a measurement")
    parser.add_argument("--at-once", type=int, default=1, help="contenders of a form that run at the same time (1)")
    parser.add_argument("--seed", type=int, help="which processes are killed, and when (random)")
    parser.add_argument(
        "--write", action="store_true", help="into docs/reference/faults.md, each contender when it has ended"
    )
    args = parser.parse_args()
    if args.write and args.quick:
        parser.error("--write keeps measurements: not those of --quick")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    seed = secrets.randbelow(10**6) if args.seed is None else args.seed
    chosen = [each for each in contenders() if args.only is None or each.name in args.only]
    run = Run(seed, f"seed {seed}, {args.at_once} at a time", machine() if args.write else None)
    entries: list[Entry] = []
    for every_second in (True, False):
        forms = (
            (timeline.QUICK_SECONDS, timeline.SECONDS) if every_second else (timeline.QUICK_MINUTES, timeline.MINUTES)
        )
        form = forms[0] if args.quick else forms[1]
        with ThreadPoolExecutor(args.at_once) as pool:
            parts = [each for each in chosen if each.every_second is every_second]
            entries += pool.map(lambda each, form=form: carry_out(each, form, run), parts)
    print(page.as_text(entries), flush=True)
    if failed := [each.name for each in entries if "**not run**" in each.row]:
        sys.exit(f"bench: not run: {', '.join(failed)}")


def stop(*_: object) -> None:
    """Each contender leaves through the `finally` blocks that end its processes and drop its database."""
    timeline.STOPPED.set()
    sys.exit("bench: stopped")


def carry_out(contender: Contender, form: Form, run: Run) -> Entry:
    """Its entry, also where it could not run."""
    try:
        found = measure(contender, form, run.seed)
    except Exception as problem:  # whatever stops one contender must not stop the others
        progress(f"NOT RUN: {contender.name}: {problem!r}")
        found = page.missing(contender.name, form, str(problem)[:300])
    found = replace(found, line=f"{found.line} ({run.said})")
    if run.machine is not None:
        with _writing:
            page.PAGE.write_text(page.with_entries(page.PAGE.read_text(), [found], run.machine))
    return found


def measure(contender: Contender, form: Form, seed: int) -> Entry:
    contender.prepare()
    folder = FOLDER / "".join(letter if letter.isalnum() else "-" for letter in contender.name)
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    draw = random.Random(f"{seed} {contender.name}")
    target = Target(folder / "target.jsonl")
    try:
        with databases.fresh(contender.store) as url:
            settings = Settings(url, target.url, form.schedules, contender.every_second, str(folder))
            contender.setup(settings)
            return run_and_kill(contender, form, settings, target, draw, folder)
    finally:
        target.close()


def run_and_kill(
    contender: Contender, form: Form, settings: Settings, target: Target, draw: random.Random, folder: Path
) -> Entry:
    commands = contender.commands(settings)
    processes = Processes(commands, contender.is_ready, contender.environment(settings), folder, draw)
    try:
        processes.start_all()
        processes.wait_ready()
        first = form.first_after(time.time())
        expected = form.expected(first, settings.names)
        progress(f"{contender.name}: {len(commands)} process(es), {len(expected):,} slots from {time.ctime(first)}")
        time.sleep(max(0.0, first - time.time()))
        timeline.run(
            processes, form, first, draw, lambda: set(expected) <= by_slot(target.arrivals(), form.period).keys()
        )
        arrivals = target.arrivals()
        told = None if contender.records is None else dict(contender.records(settings))
    finally:
        processes.end()
    account = account_of(expected, arrivals, form.period)
    for life in processes.ended:
        progress(f"{contender.name}: ended by itself: {life}")
    shown = ", ".join(f"`{each}`" for each in shorten(commands, settings))
    how = f"{contender.version()}, {databases.TITLES[contender.store]}: {contender.settings}. {shown}"
    if processes.ended:
        how += f". {len(processes.ended)} lives ended by themselves and were started again"
    progress(f"{contender.name}: {len(account.lost)} lost, {len(account.doubled)} doubled of {account.slots:,}")
    return page.entry(contender.name, form, len(commands), processes.kills, first, account, told, how)


def shorten(commands: Mapping[str, Sequence[str]], settings: Settings) -> list[str]:
    """Each command once, without the paths and addresses of this machine and without the letter of a process."""
    found = {}
    for name, command in commands.items():
        without_letter = command[:-1] if command[-1] == name else command
        words = [Path(word).name if word.startswith("/") else word for word in without_letter]
        text = " ".join(words).replace(settings.url, "URL").replace(f"{settings.folder}/", "")
        found[text] = None
    return list(found)


if __name__ == "__main__":
    main()
