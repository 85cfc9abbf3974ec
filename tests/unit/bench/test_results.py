"""The file of results: what a run writes, and what it leaves as it is."""

from __future__ import annotations

from bench import results, speed
from bench.peers.sample import Sample
from bench.results import KEPT, measured, replaced
from bench.speed.rows import rate_row

DOCUMENT = f"""# Results

By hand.

## Pages

old

### Part

| a |

{KEPT}

Why it is slow.

## Speed

older
"""


def test_a_run_replaces_its_section_and_keeps_what_was_written_by_hand():
    found = replaced(DOCUMENT, "Pages", "new\n")
    assert found == DOCUMENT.replace("old\n\n### Part\n\n| a |\n", "new\n")
    assert measured(found, "Pages") == "new"
    assert measured(found, "Speed") == "older"


def test_a_section_that_is_new_stands_at_the_end():
    found = replaced(DOCUMENT, "Events", "some")
    assert found == f"{DOCUMENT}\n## Events\n\nsome\n"


def test_writing_the_same_twice_changes_nothing():
    once = replaced(DOCUMENT, "Speed", "new")
    assert replaced(once, "Speed", "new") == once


def test_the_file_of_results_is_laid_out_as_a_run_writes_it():
    document = results.FILE.read_text()
    title = "Speed beside the peers"
    assert replaced(document, title, measured(document, title)) == document


def test_a_stage_replaces_its_own_lines_of_the_table_of_speed():
    lines = {
        "drain-postgresql": ["| drain-postgresql | drain | 1 |", "- drain-postgresql: slow."],
        "once": ["| once | due | 2 |", "- once: fine."],
    }
    text = speed.table(lines)
    assert results.of_stages(text, speed.STAGES) == lines
    again = speed.table(results.of_stages(text, speed.STAGES) | {"once": ["| once | due | 3 |"]})
    assert "| once | due | 3 |" in again
    assert "fine" not in again
    assert "| drain-postgresql | drain | 1 |" in again


def sample(rate: float | None) -> Sample:
    return Sample("one", "1", None, None, rate, 10, "")


def test_a_row_is_held_against_the_fastest_of_those_it_names():
    samples = {
        "Noonbell": [sample(300), sample(330)],
        "slow": [sample(100), sample(110)],
        "fast": [sample(200), sample(220)],
        "another store": [sample(999), None],
    }
    row = rate_row("drain", samples, "Noonbell", "drain", 1.5, ["slow", "fast"])
    assert row.ratio == "1.50× fast"
    assert row.met is True
    assert row.beside.startswith("another store 999; fast 210")
    assert rate_row("drain", samples, "Noonbell", "drain", 1.51, ["slow", "fast"]).verdict == "**not met**"


def test_a_row_without_its_peer_has_no_verdict():
    row = rate_row("drain", {"Noonbell": [sample(300)], "peer": [None]}, "Noonbell", "drain", 1.1, ["peer"])
    assert (row.ours, row.ratio, row.verdict) == ("300", "–", "–")
