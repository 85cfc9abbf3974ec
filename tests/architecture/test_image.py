"""What the image is built from: nothing that was not chosen here, by version and by hash."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from services.image import instructions

ROOT = Path(__file__).parents[2]
LOCKED = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)


def versions(name: str) -> dict[str, str]:
    return dict(LOCKED.findall((ROOT / name).read_text()))


def installs() -> list[str]:
    """Each call of pip in the Dockerfile."""
    runs = " && ".join(text for word, text in instructions() if word == "RUN")
    return [part.strip() for part in runs.split("&&") if re.search(r"\bpip (install|wheel|download)\b", part)]


def test_pip_takes_nothing_without_a_hash():
    """Either each package has its hash, or nothing is fetched at all."""
    assert installs()
    for call in installs():
        fetches_nothing = "--no-index" in call and "--no-deps" in call
        assert ("--require-hashes" in call and "--only-binary :all:" in call) or fetches_nothing, call


def test_the_build_makes_no_environment_of_its_own():
    """Build isolation would fetch the newest build backend of the day."""
    for call in installs():
        if " ." in call or "pip wheel" in call:
            assert "--no-build-isolation" in call, call


def test_no_hash_is_taken_out_of_a_lock():
    assert not [text for word, text in instructions() if word == "RUN" and "hash" in text and "sed" in text]


def test_both_stages_begin_with_the_one_base_that_a_builder_can_pin():
    base = [text for word, text in instructions() if word == "FROM"]
    assert [text.split()[0] for text in base] == ["${BASE}", "${BASE}"]
    assert [text for word, text in instructions() if word == "ARG" and text.startswith("BASE=")]


@pytest.mark.parametrize("name", ["deploy/image.lock", "deploy/build.lock"])
def test_the_image_has_the_versions_that_the_tests_run_with(name):
    tested = versions("requirements.lock")
    assert versions(name)
    assert {each: tested.get(each) for each in versions(name)} == versions(name)


def test_what_is_copied_is_in_the_context():
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [text for word, text in instructions() if word == "COPY" and "--from" not in text]
    assert copied
    for text in copied:
        assert {name.partition("/")[0] for name in text.split()[:-1]} <= allowed, text


def test_the_process_of_the_image_is_not_root():
    """S36: by number, so that an orchestrator can check it without looking into the image."""
    found = instructions()
    last = max(place for place, (word, _) in enumerate(found) if word == "FROM")
    users = [text for word, text in found[last:] if word == "USER"]
    assert users
    assert int(users[-1].partition(":")[0]) >= 1_000
