"""The colours of the dashboard, computed from its style sheet: everything that is read or told apart has the contrast it needs.

WCAG 2.2 AA asks for 4.5 between a text and what it stands on, and for 3 between a mark and its surroundings.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SHEET = (Path(__file__).parents[3] / "src/noonbell/web/static/app.css").read_text()
TOKEN = re.compile(r"--([a-z-]+): light-dark\((#[0-9a-f]{3,6}), (#[0-9a-f]{3,6})\)")
TOKENS = {name: {"light": light, "dark": dark} for name, light, dark in TOKEN.findall(SHEET)}
TINTS = {"light": 0.12, "dark": 0.16}
STATES = (
    *("scheduled", "queued", "running", "callback", "retrying", "ok", "failed", "timeout", "missed"),
    *("skipped", "canceled", "paused", "warn"),
)
MARKS = ("mark-ok", "mark-bad", "mark-warn", "mark-active", "mark-idle", "mark-waiting")
GROUNDS = ("canvas", "surface", "raised")
THEMES = ("light", "dark")
BLINDNESS = {
    "deuteranopia": ((0.29031, 0.70969, 0.0), (0.29031, 0.70969, 0.0), (-0.02197, 0.02197, 1.0)),
    "protanopia": ((0.10889, 0.89111, 0.0), (0.10889, 0.89111, 0.0), (0.00447, -0.00447, 1.0)),
}
"""What is left of linear red, green and blue for eyes without one kind of cone, after Viénot, Brettel and Mollon (1999)."""
WHITE = (0.95047, 1.0, 1.08883)

Colour = tuple[float, float, float]


def colour(name: str, theme: str) -> Colour:
    text = TOKENS[name][theme].removeprefix("#")
    text = "".join(2 * digit for digit in text) if len(text) == 3 else text
    return int(text[:2], 16) / 255, int(text[2:4], 16) / 255, int(text[4:], 16) / 255


def mixed(one: Colour, part: float, other: Colour) -> Colour:
    """As `color-mix(in srgb, one part, other)` has it."""
    red, green, blue = (a * part + b * (1 - part) for a, b in zip(one, other, strict=True))
    return red, green, blue


def linear(given: Colour) -> Colour:
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in given)
    return red, green, blue


def light_of(given: Colour) -> float:
    red, green, blue = linear(given)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: Colour, other: Colour) -> float:
    dark, bright = sorted((light_of(one), light_of(other)))
    return (bright + 0.05) / (dark + 0.05)


def lab(given: Colour) -> Colour:
    """CIE Lab of a linear colour."""
    red, green, blue = given
    x = 0.4124 * red + 0.3576 * green + 0.1805 * blue
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = 0.0193 * red + 0.1192 * green + 0.9505 * blue
    parts = [part / white for part, white in zip((x, y, z), WHITE, strict=True)]
    fx, fy, fz = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in parts)
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def distance(one: str, other: str, theme: str, blindness: str) -> float:
    """Between two marks, for eyes like that."""
    seen = []
    for name in (one, other):
        rgb = linear(colour(name, theme))
        red, green, blue = (
            max(0.0, sum(share * part for share, part in zip(row, rgb, strict=True))) for row in BLINDNESS[blindness]
        )
        seen.append(lab((red, green, blue)))
    return sum((a - b) ** 2 for a, b in zip(*seen, strict=True)) ** 0.5


def test_known_pairs_have_the_contrast_that_is_known_of_them():
    assert contrast((0, 0, 0), (1, 1, 1)) == pytest.approx(21)
    assert contrast(colour("muted", "light"), colour("surface", "light")) == pytest.approx(6.0, abs=0.05)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("text", ["text", "muted", "accent"])
def test_text_is_read_on_every_ground(text, ground, theme):
    assert contrast(colour(text, theme), colour(ground, theme)) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("state", STATES)
def test_a_state_is_read_on_its_own_tint_and_on_the_surface(state, theme):
    tone, surface = colour(state, theme), colour("surface", theme)
    assert contrast(tone, mixed(tone, TINTS[theme], surface)) >= 4.5
    assert contrast(tone, surface) >= 4.5


def test_badges_have_the_tints_that_were_computed_with():
    (rule,) = re.findall(r"^\.badge \{(.*)\}$", SHEET, re.MULTILINE)
    assert re.findall(r"var\(--tone\) (\d+)%", rule) == [str(round(100 * TINTS[theme])) for theme in THEMES]


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("ground", ["surface", "canvas"])
@pytest.mark.parametrize("mark", [*MARKS, "missed", "control", "accent"])
def test_a_mark_and_the_border_of_a_field_are_seen(mark, ground, theme):
    assert contrast(colour(mark, theme), colour(ground, theme)) >= 3


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("ground", ["accent", "failed"])
def test_the_words_of_a_filled_button_are_read(ground, theme):
    assert contrast(colour("on-accent", theme), colour(ground, theme)) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("ground", ["surface", "canvas"])
def test_the_words_of_what_is_chosen_are_read_on_its_tint(ground, theme):
    """A room, a tab: the accent on 12 % of itself, over what lies below."""
    accent = colour("accent", theme)
    assert contrast(accent, mixed(accent, 0.12, colour(ground, theme))) >= 4.5


@pytest.mark.parametrize("blindness", BLINDNESS)
@pytest.mark.parametrize("theme", THEMES)
def test_good_and_bad_are_told_apart_without_seeing_red_or_green(theme, blindness):
    assert distance("mark-ok", "mark-bad", theme, blindness) >= 25
