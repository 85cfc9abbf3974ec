"""Other people's cron tests, put to our cron.

`vectors.json` holds facts from six projects, each group with its licence. A vector is out only by a rule below, never
one by one; the counts are asserted so that none drops out unseen. docs/decisions/0004-cron-vectors.md has the reasons.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from noonbell.errors import ScheduleError
from noonbell.when import parse

Vector = dict[str, Any]

VECTORS: list[Vector] = json.loads((Path(__file__).parent / "vectors.json").read_text(encoding="utf-8"))["vectors"]


def in_our_order(vector: Vector) -> str:
    """cronexpr writes a year last, and seconds only before seven fields. A year of `*` says nothing, so leave it off."""
    parts: list[str] = vector["pattern"].split()
    if vector["group"] == "cronexpr" and len(parts) > 5 and parts[-1] == "*":
        return " ".join(parts[:-1])
    return str(vector["pattern"])


def names_a_year(vector: Vector) -> bool:
    return vector["group"] == "cronexpr" and vector["fields"] > 5 and not vector["pattern"].endswith("*")


def goes_by_the_wall(vector: Vector) -> bool:
    """cronsim drops Debian's rules when there is a seconds field. Ours do not depend on it: one says so with `dst`."""
    return vector["group"] == "cronsim" and vector["tier"] == "dst" and vector["fields"] == 6


def spec_of(vector: Vector) -> dict[str, str]:
    spec = {"type": "cron", "expr": in_our_order(vector)}
    return {**spec, "dst": "wall"} if goes_by_the_wall(vector) else spec


OUT: dict[str, Callable[[Vector], bool]] = {"names a year": names_a_year}


def rule_against(vector: Vector) -> str | None:
    return next((name for name, applies in OUT.items() if applies(vector)), None)


IN = [vector for vector in VECTORS if rule_against(vector) is None]
VALID = [vector for vector in IN if "expected" in vector]
INVALID = [vector for vector in IN if vector.get("invalid")]


def failures(vectors: list[Vector], problem: Callable[[Vector], str | None]) -> list[str]:
    found = []
    for vector in vectors:
        said = problem(vector)
        if said:
            found.append(f"{vector['id']} {vector['pattern']!r}: {said}")
    return found


def epoch(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def wrong_answer(vector: Vector) -> str | None:
    try:
        schedule = parse(spec_of(vector), vector["tz"])
    except ScheduleError as bad:
        # "Never fires" is the one refusal that agrees with an empty list.
        return None if not vector["expected"] and "never fires" in bad.message else bad.message
    start = epoch(vector["from"])
    at = start - 1 if vector["inclusive"] else start
    for expected in vector["expected"]:
        found = schedule.next(at)
        if found != epoch(expected):
            return f"after {at}: {found}, expected {expected} ({epoch(expected)})"
        at = found
    return None if vector["expected"] else f"fires at {schedule.next(at)}, expected never"


def wrong_mirror(vector: Vector) -> str | None:
    if not vector["expected"]:
        return None
    schedule = parse(spec_of(vector), vector["tz"])
    for expected in vector["expected"]:
        slot = epoch(expected)
        following = schedule.next(slot)
        if following is not None and schedule.previous(following) != slot:
            return f"before {following}: {schedule.previous(following)}, expected {slot}"
    return None


def wrong_acceptance(vector: Vector) -> str | None:
    try:
        parse({"type": "cron", "expr": vector["pattern"]})
    except ScheduleError as bad:
        return None if "schedule.expr" in bad.details else f"names {list(bad.details)}"
    return "accepted"


def test_no_vector_drops_out_unseen() -> None:
    ran = Counter(vector["group"] for vector in IN)
    out = Counter(rule_against(vector) for vector in VECTORS) - Counter({None: len(IN)})
    print(f"ran {len(VALID)} with slots, {len(INVALID)} to refuse: {dict(ran)}; out: {dict(out)}")  # noqa: T201
    assert len(VALID) + len(INVALID) == len(IN) == 1258
    assert ran == {"cronos": 791, "cronsim": 253, "cronexpr": 66, "php-cron-expression": 58, "robfig": 57, "quartz": 33}
    assert out == {"names a year": 2}


def test_every_vector_of_the_daylight_saving_tier_runs_under_a_stated_option() -> None:
    options = Counter(spec_of(vector).get("dst", "debian") for vector in VALID if vector["tier"] == "dst")
    assert options == {"debian": 33, "wall": 3}
    assert options.total() == sum(vector["tier"] == "dst" for vector in VECTORS)


def test_every_rule_that_leaves_vectors_out_is_in_the_decision_note() -> None:
    note = (Path(__file__).parents[3] / "docs" / "decisions" / "0004-cron-vectors.md").read_text(encoding="utf-8")
    for vector in VECTORS:
        rule = rule_against(vector)
        if rule is not None:
            assert f"**{rule}**" in note
            assert f"`{vector['id']}`" in note


def test_every_vector_of_our_dialect_gives_the_expected_slots() -> None:
    assert failures(VALID, wrong_answer) == []


def test_every_vector_of_our_dialect_holds_backwards() -> None:
    """What follows each expected slot has that slot as its previous one."""
    assert failures(VALID, wrong_mirror) == []


def test_every_invalid_pattern_is_refused() -> None:
    assert failures(INVALID, wrong_acceptance) == []


def test_six_fields_with_second_0_have_the_daylight_saving_rules_of_five() -> None:
    """Without `dst`, a vector that runs by the wall above has the answer of its five-field twin."""
    spring = epoch("2021-03-28T01:31:00+02:00")
    five, six = (parse({"type": "cron", "expr": text}, "Europe/Riga") for text in ("30 1-10 * * *", "0 30 1-10 * * *"))
    at = spring
    for expected in ("2021-03-28T02:30:00+02:00", "2021-03-28T04:00:00+03:00", "2021-03-28T04:30:00+03:00"):
        assert five.next(at) == six.next(at) == epoch(expected)
        at = epoch(expected)
