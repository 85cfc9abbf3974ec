"""What `noonbell move`, `backup` and `restore` show while they copy."""

from __future__ import annotations

from noonbell.cli.move import shown_progress


def test_rows_that_came_after_the_count_do_not_go_beyond_the_end(capsys):
    with shown_progress(4) as progress:
        for copied in (1, 4, 6):
            progress(copied)
    assert capsys.readouterr().err.split() == ["25", "%", "100", "%"]


def test_an_empty_store_and_one_whose_rows_were_not_counted_in_time_are_copied_all_the_same(capsys):
    with shown_progress(0) as progress:
        progress(0)
    assert capsys.readouterr().err == ""
    with shown_progress(None) as progress:
        progress(7)
    assert capsys.readouterr().err == "the rows could not be counted in time: no progress is shown\n"
