"""How an error is laid out for a reader: what went wrong first, then where, without Noonbell's own frames."""

from __future__ import annotations

from pathlib import Path

import noonbell
from noonbell.web.error_text import error_text, headline

OURS = Path(noonbell.__file__).parent
THEIRS = '  File "/srv/shop/jobs.py", line 12, in charge\n    row["total"]\n'
OWN = f'  File "{OURS}/targets/jobs/handler.py", line 4, in call\n    await handler()\n'
INSTALLED = '  File "/usr/lib/python3.12/site-packages/noonbell/app/job.py", line 9, in run\n    yield\n'


def parts_of(found):
    return [(part.text, part.is_own) for part in found.parts]


def test_the_traceback_of_a_job_stands_apart_from_the_other_details():
    found = error_text("KeyError: 'total'", {"kind": "error", "type": "KeyError", "traceback": THEIRS})
    assert found.headline == "KeyError: 'total'"
    assert parts_of(found) == [(THEIRS.rstrip("\n"), False)]
    assert found.details == {"kind": "error", "type": "KeyError"}


def test_frames_of_noonbell_are_parted_from_the_others():
    found = error_text("KeyError: 'total'", {"traceback": OWN + INSTALLED + THEIRS + OWN})
    assert [part.is_own for part in found.parts] == [True, False, True]
    assert [part.frames for part in found.parts] == [2, 1, 1]
    assert found.parts[0].text == (OWN + INSTALLED).rstrip("\n")


def test_a_folder_of_the_same_name_is_not_ours():
    frame = '  File "/srv/noonbell/jobs.py", line 1, in f\n    x\n'
    assert parts_of(error_text("x", {"traceback": frame})) == [(frame.rstrip("\n"), False)]


def test_a_whole_traceback_as_message_says_its_last_line_first():
    text = f"Traceback (most recent call last):\n{OWN}{THEIRS}KeyError: 'total'"
    found = error_text(text, None)
    assert found.headline == headline(text) == "KeyError: 'total'"
    assert [part.is_own for part in found.parts] == [False, True, False]
    assert found.parts[-1].text == THEIRS.rstrip("\n")
    assert found.details is None


def test_the_last_line_of_chained_tracebacks_may_have_several_lines():
    text = f"Traceback (most recent call last):\n{THEIRS}ValueError: first\nsecond line\n\nthird line"
    assert error_text(text, None).headline == "ValueError: first\nsecond line\n\nthird line"
    assert headline(text) == "ValueError: first"
    chained = f"{text}\n\nDuring handling of the above exception, another exception occurred:\n\n"
    chained += f"Traceback (most recent call last):\n{THEIRS}OSError: gone"
    assert error_text(chained, None).headline == "OSError: gone"


def test_other_messages_of_several_lines_keep_their_first_line_in_front():
    text = "java.io.IOException: closed\n\tat shop.Pay.run(Pay.java:7)\n\tat shop.Main"
    found = error_text(text, {"kind": "error"})
    assert (found.headline, headline(text)) == ("java.io.IOException: closed", "java.io.IOException: closed")
    assert parts_of(found) == [("\tat shop.Pay.run(Pay.java:7)\n\tat shop.Main", False)]


def test_a_message_of_one_line_has_nothing_below_it():
    found = error_text("answered 503", {"kind": "http_5xx"})
    assert (found.headline, found.parts, found.details) == ("answered 503", [], {"kind": "http_5xx"})
    assert error_text(None, None).headline == ""
    assert error_text("x", {"traceback": 7}).details == {"traceback": 7}
