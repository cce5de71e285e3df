"""Which layers are wrong by themselves, where each gets golden inputs: in the summary and on the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from msprobe_hooks import feed, record
from tests.support.browser.chromium import texts
from tests.support.fixtures.comparisons import compare

__all__ = ["compare"]


class Gated(nn.Module):
    """A gated MLP whose activation lies between its modules; it is a part of ``leak`` of what it is given."""

    def __init__(self, *, leak: float = 0.0) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(6, 10), nn.Linear(6, 10), nn.Linear(10, 6)
        self.leak = leak

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.leaky_relu(self.gate(x), self.leak) * self.up(x))


class Tower(nn.Module):
    """Four layers, of which two of a broken one are wrong: one between its modules, one in a module."""

    def __init__(self, *, broken: bool = False) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(2)
            self.stem = nn.Linear(4, 6)
            self.layers = nn.ModuleList(Gated(leak=0.1 if broken and place == 1 else 0.0) for place in range(4))
        if broken:
            self.layers[3].up.weight.data[2] *= 1.5

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return x


def run(folder: Path, model: Tower) -> Path:
    with record(folder, level="L0", model=model, task="tensor"), torch.no_grad():
        model(torch.randn(5, 4, generator=torch.Generator().manual_seed(7)))
    return folder


@pytest.fixture
def both(tmp_path: Path) -> tuple[Path, Path]:
    """Return a broken run whose modules were fed, and the golden run."""
    golden = run(tmp_path / "golden", Tower())
    with feed(golden, ["*"]):
        return run(tmp_path / "fed", Tower(broken=True)), golden


def test_each_layer_that_is_wrong_by_itself_is_named_with_what_is_wrong_in_it(compare, both):
    result = compare(*both)
    result.stdout.fnmatch_lines(
        [
            "on golden inputs 2 of 5 fed layers are wrong by themselves, first layers.1",
            "    layers.1: was passed inputs off by 0.00e+00, *; the code before layers.1.down is wrong by *",
            "    layers.3: was passed inputs off by 0.00e+00, *; layers.3.up is wrong",
        ],
        consecutive=True,
    )
    result.stdout.no_fnmatch_line("    stem: *")


def test_all_fed_layers_are_listed_with_v(compare, both):
    compare(*both, "-v").stdout.fnmatch_lines(
        ["    stem: was passed *; nothing in it is wrong by itself", "    layers.0: *", "    layers.1: *"]
    )


def test_what_a_layer_was_passed_is_off_by_what_the_layer_before_it_did(compare, tmp_path):
    golden = run(tmp_path / "golden", Tower())
    with feed(golden, ["layers.2"]):
        fed = run(tmp_path / "fed", Tower(broken=True))
    compare(fed, golden, "-v").stdout.fnmatch_lines(
        [
            "on golden inputs 0 of 1 fed layers are wrong by themselves",
            "    layers.2: was passed inputs off by [1-9]*, is off by 0.00e+00 on golden inputs; nothing *",
        ]
    )


def test_a_comparison_without_fed_modules_has_no_line_about_them(compare, tmp_path):
    golden, broken = run(tmp_path / "golden", Tower()), run(tmp_path / "broken", Tower(broken=True))
    compare(broken, golden).stdout.no_fnmatch_line("*fed layers*")


@pytest.mark.slow
def test_the_page_has_a_table_of_the_fed_layers(compare: Any, tmp_path: Path, both: Any, browser: Any) -> None:
    compare(*both, "--msprobe-html", str(tmp_path / "page.html"))
    browser.get((tmp_path / "page.html").as_uri())
    next(tab for tab in browser.find_elements("css selector", "#views *") if tab.text == "Fed layers").click()
    cells = [text for text in texts(browser, "#fed tbody td") if text]
    assert [text for text in cells if text.startswith(("stem", "layers."))] == [
        "stem", "layers.0", "layers.1", "layers.2", "layers.3", "layers.3.up",
    ]  # fmt: skip
    assert "the code before layers.1.down" in cells
