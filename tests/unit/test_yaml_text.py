"""The one reader and writer of YAML: files of settings and tasks, the editor, pages."""

from __future__ import annotations

import pytest

from noonbell import yaml_text


def test_moments_stay_text_as_in_json():
    assert yaml_text.read("start_at: 2027-01-01T00:00:00Z\nday: 2027-01-02") == {
        "start_at": "2027-01-01T00:00:00Z",
        "day": "2027-01-02",
    }


def test_a_key_that_stands_twice_is_refused_with_its_line():
    with pytest.raises(ValueError, match="line 3: 'a' is given twice"):
        yaml_text.read("a: 1\nb: 2\na: 3")


def test_a_file_may_hold_several_documents_and_empty_ones_are_left_out():
    assert yaml_text.read_all("a: 1\n---\n---\nb: 2") == [{"a": 1}, {"b": 2}]
    assert yaml_text.read_all("") == []


def test_where_one_document_is_expected_a_second_is_refused():
    assert yaml_text.read("") is None
    with pytest.raises(ValueError, match="several documents"):
        yaml_text.read("a: 1\n---\nb: 2")


def test_a_file_of_ones_own_may_use_anchors_and_what_a_caller_sends_may_not():
    text = "x: &x {a: 1}\ny: {<<: *x, b: 2}"
    assert yaml_text.read(text) == {"x": {"a": 1}, "y": {"a": 1, "b": 2}}
    with pytest.raises(ValueError, match="alias"):
        yaml_text.to_json(text)


@pytest.mark.parametrize("text", ["a: [", "a: !!python/object:os.system x"])
def test_what_is_no_yaml_is_refused_with_the_line(text):
    with pytest.raises(ValueError, match=r"is neither YAML nor JSON: line \d: "):
        yaml_text.read(text)


def test_what_is_written_is_read_back_and_has_no_alias():
    shared = [1, "é", None]
    text = yaml_text.write({"b": shared, "a": shared})
    assert "*" not in text
    assert yaml_text.read(text) == {"b": shared, "a": shared}
    assert list(yaml_text.read(text)) == ["b", "a"]


def test_a_key_is_a_text_also_where_yaml_would_take_it_for_a_truth_value():
    assert yaml_text.read("{on: failure, yes: on}") == {"on": "failure", "yes": True}
