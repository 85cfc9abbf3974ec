"""python -m bench.growth [--only PART] [--prepare] [--tasks N] [--hourly N] [--burst N] [--seconds S] [--history N] [--convert N]"""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields

from bench.growth import HEAD, STAGES, take
from bench.growth.sizes import Sizes
from bench.tables import markdown


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description="A store that grows, at any size.")
    parser.add_argument("--only", choices=list(STAGES))
    parser.add_argument("--prepare", action="store_true", help="make the rows, and measure another time")
    for each in fields(Sizes):
        parser.add_argument(f"--{each.name}", type=int, default=each.default)
    given = vars(parser.parse_args())
    only, prepare = given.pop("only"), given.pop("prepare")
    sizes = Sizes(**given)
    try:
        rows = [[name, *row] for name in STAGES if only in (None, name) for row in take(name, sizes, prepare=prepare)]
    except KeyboardInterrupt:
        sys.exit("bench: cut off; the same command goes on")
    if not prepare:
        sys.stdout.write(f"{markdown(HEAD, rows, right=(2,))}\n")
        if any("missed" in row[-1] for row in rows):
            sys.exit(1)


if __name__ == "__main__":
    main()
