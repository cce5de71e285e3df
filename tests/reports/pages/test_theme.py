"""The colours of all pages."""

from __future__ import annotations

import re
from importlib import resources

import pytest

LEAST_CONTRAST = 4.5  # AA, of text of usual size
TEXTS, GROUNDS = ("fore", "soft", "pass", "warn", "fail", "skip", "link"), ("back", "panel", "mark")


def schemes() -> dict[str, dict[str, str]]:
    text = (resources.files("pytest_msprobe.reports.pages") / "layout" / "theme.css").read_text()
    blocks = re.findall(r"(:root[^{]*)\{([^}]*)\}", text)
    return {selector.strip(): dict(re.findall(r"--(\w+): (#\w{6})", block)) for selector, block in blocks}


def luminance(colour: str) -> float:
    parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [":root", ':root[data-theme="dark"]'])
def test_each_text_can_be_read_on_each_ground_also_in_a_chosen_row(scheme: str) -> None:
    colours = schemes()[scheme]
    pairs = {(text, ground): contrast(colours[text], colours[ground]) for text in TEXTS for ground in GROUNDS}
    assert {pair: round(found, 2) for pair, found in pairs.items() if found < LEAST_CONTRAST} == {}
