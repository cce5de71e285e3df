"""The page of a check, looked at in a real browser."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_msprobe.engine.values.error_locations import error_map
from pytest_msprobe.engine.values.tolerance import Allowance
from pytest_msprobe.journal import read_journal
from pytest_msprobe.journal.shards import Part, whole_runs
from pytest_msprobe.reports.check_page import write_page_of_journals
from pytest_msprobe.results.outcomes import SkipReason
from pytest_msprobe.results.result import DirectionResult, InputStatistics, with_called_at, with_inputs
from tests.support.browser.chromium import click, open_browser, set_width, texts, texts_drawn_on, until
from tests.support.journals import make_judged, skipped, write_journal

pytestmark = pytest.mark.slow

HOSTILE = "</script><img src=x onerror=alert(1)>'$(id)"
WORST = "Functional.softmax.0.forward"


def _worst() -> DirectionResult:
    """Return a failure whose last column was dropped."""
    golden = torch.ones(16, 8, dtype=torch.float64)
    target = golden.float()
    target[:, -1] = 0
    result = make_judged(WORST, "fail", 50.0, reason=f"wrong {HOSTILE}")
    (output,) = result.outputs
    found = error_map(target, golden, Allowance(ulps=2), baseline=golden.float())
    result = replace(result, outputs=(replace(output, error_map=found),), notes=("the smallest input that fails",))
    return with_called_at(
        with_inputs(result, [InputStatistics("args.0", "torch.float32", (16, 8), -1.0, 1.0, 0.0, 0.5, 2)]),
        ["File model.py, line 3, in forward, self.attend(x)"],
    )


def _write(folder: Path, *runs: list[DirectionResult]) -> str:
    paths = [write_journal(folder / f"{place}.jsonl", *results) for place, results in enumerate(runs)]
    write_page_of_journals(folder / "page.html", whole_runs([Part(path, read_journal(path)) for path in paths]))
    return (folder / "page.html").as_uri()


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with open_browser() as found:
        yield found


@pytest.fixture
def browser(driver: Any, tmp_path: Path) -> Any:
    """Open the page of a run with a wrong record, one of a hostile name, one that is skipped, and some that pass."""
    right = [make_judged(f"Torch.mul.{place}.backward", "pass", 0.01 * place, seconds=place) for place in range(40)]
    others = [make_judged(HOSTILE, "fail", 2.0), skipped("Torch.add.1.forward", SkipReason.NO_GRADIENT)]
    driver.get("about:blank")
    driver.get(_write(tmp_path, [*right, _worst(), *others]))
    yield driver
    assert driver.get_log("browser") == []


def test_the_overview_names_the_worst_the_slowest_and_what_was_skipped(browser: Any) -> None:
    assert texts(browser, "#title") == [f"2 of 43 records of {browser.title.split(' of ', 2)[2][:-7]} failed"]
    listed = texts(browser, "#details li")
    assert listed[0] == f"50 {WORST} on npu:3"
    assert "39 Torch.mul.39.backward on npu:3" in listed
    assert SkipReason.NO_GRADIENT.value in texts(browser, "#details td")
    assert "HF32 matmul off, deterministic on" in texts(browser, "#details td")


def test_rows_come_the_worst_first_and_can_be_sorted_and_searched(browser: Any) -> None:
    names = "#scroller tbody td:nth-child(2)"
    assert texts(browser, names)[:3] == [WORST, HOSTILE, "Torch.mul.39.backward"]
    click(browser, "document.querySelectorAll('#scroller th button')[7]")
    assert texts(browser, names)[0] == "Torch.mul.39.backward"
    browser.find_element("id", "search").send_keys("mul.7.")
    until(browser, lambda: texts(browser, "#count") == ["1 of 43 records"])
    assert texts(browser, names) == ["Torch.mul.7.backward"]


def test_a_failing_record_opens_to_all_that_is_known_of_it(browser: Any) -> None:
    click(browser, "document.querySelector('#details li button')")

    assert texts(browser, "#details h2") == [WORST]
    shown = browser.find_element("id", "details").text
    assert "16 elements of 128 beyond 2 ULP, all in [:, 7]" in shown
    assert "the smallest input that fails" in shown
    assert "File model.py, line 3, in forward, self.attend(x)" in shown
    rerun = f"pytest --msprobe-dump=/data/run/dump.json::{WORST} --msprobe-device npu:3"
    click(browser, "document.querySelector('#details .further summary')")
    commands = texts(browser, "#details .command pre")
    assert commands[:2] == [rerun, f"{rerun} --msprobe-save-failures=failures"]
    assert all(WORST in command for command in commands)
    cells = texts(browser, "#details td")
    assert cells[3:7] == ["[0, 7]", "0", "1", "1"]
    assert cells[-7:] == ["args.0", "float32 (16, 8)", "-1", "1", "0", "0.5", "2"]
    assert texts(browser, ".histogram title")[0] == "target, 0 ULP: 112 elements"


def test_the_map_shows_the_column_and_says_what_is_under_the_pointer(browser: Any) -> None:
    click(browser, "document.querySelector('#details li button')")
    columns = browser.execute_script("""
        const canvas = document.querySelector(".map canvas"), wide = canvas.width / 8;
        const line = canvas.getContext("2d").getImageData(0, 2, canvas.width, 1).data;
        return Array.from({ length: 8 }, (_, x) => line.slice(4 * (x * wide + 2), 4 * (x * wide + 3)).join());
    """)
    assert len(set(columns[:7])) == 1
    assert columns[7] != columns[6]
    browser.execute_script("""
        const canvas = document.querySelector(".map canvas"), box = canvas.getBoundingClientRect();
        canvas.dispatchEvent(new MouseEvent("mousemove", { clientX: box.right - 2, clientY: box.top + 2 }));
    """)
    (caption,) = texts(browser, ".map .caption")
    assert caption.startswith("row 0, column 7: ")
    assert caption.endswith(" times the limit")


def test_keys_go_to_failures_rows_and_the_overview(browser: Any) -> None:
    page = browser.find_element("tag name", "body")
    page.send_keys("f")
    assert texts(browser, "#details h2") == [WORST]
    page.send_keys("f")
    assert texts(browser, "#details h2") == [HOSTILE]
    browser.find_element("id", "scroller").send_keys("j")
    assert texts(browser, "#details h2") == ["Torch.mul.39.backward"]
    page.send_keys("o")
    assert texts(browser, "#details h2") == ["Overview"]
    page.send_keys("/")
    assert browser.switch_to.active_element.get_attribute("id") == "search"


def test_no_name_of_a_dump_is_run_by_the_page_or_by_the_shell(browser: Any) -> None:
    page = browser.find_element("tag name", "body")
    page.send_keys("ff")
    command = texts(browser, "#details .command pre")[0]
    assert shlex.split(command)[1] == f"--msprobe-dump=/data/run/dump.json::{HOSTILE}"
    assert browser.find_elements("tag name", "img") == []


def test_the_plot_says_what_its_marks_are(browser: Any) -> None:
    assert texts(browser, ".legend li") == ["failed", "passed", "limit"]
    assert browser.execute_script("return table.plot.drawn.filter((one) => one.point.isMarked).length") == 2


def test_a_group_shows_its_records_alone(browser: Any) -> None:
    assert texts(browser, "#groups .name")[:2] == ["everything", "Functional.softmax forward"]
    click(browser, "[...document.querySelectorAll('#groups button')].find((one) => one.textContent.includes('mul'))")
    assert texts(browser, "#count") == ["40 of 43 records in Torch.mul backward"]
    browser.execute_script("""
        const by = document.getElementById("by");
        by.value = [...by.options].findIndex((one) => one.textContent === "Metric that decides");
        by.dispatchEvent(new Event("change"));
    """)
    assert texts(browser, "#groups .name") == ["everything", "max_ulp_error", "none"]


def test_each_row_says_in_one_line_why_it_failed(browser: Any) -> None:
    assert texts(browser, "#scroller tbody td:nth-child(4)")[:2] == [
        f"output.0: wrong {HOSTILE}",
        "output.0: fail by ulp",
    ]


def test_of_each_api_the_overview_names_the_worst_alone(driver: Any, tmp_path: Path) -> None:
    silu = [make_judged(f"Functional.silu.{place}.forward", "fail", 2.0 + place) for place in range(8)]
    driver.get(_write(tmp_path, [*silu, _worst()]))
    assert texts(driver, "#details li")[:2] == [
        f"50 {WORST} on npu:3",
        "9 Functional.silu.7.forward on npu:3, and 7 more of Functional.silu",
    ]


def test_a_record_of_the_same_name_in_another_run_has_a_link_of_its_own(driver: Any, tmp_path: Path) -> None:
    address = _write(tmp_path, [make_judged(WORST, "fail", 3.0)], [make_judged(WORST, "pass", 0.25)])
    for outcome in ("fail", "pass"):
        driver.get(address)
        click(driver, f"[...document.querySelectorAll('#scroller td.{outcome}')][0]")
        link = driver.current_url
        driver.get("about:blank")
        driver.get(link)
        assert texts(driver, f"#details dd.{outcome}") != []


def test_a_search_that_leaves_two_points_keeps_the_text_of_the_limit_in_the_plot(browser: Any) -> None:
    browser.find_element("id", "search").send_keys("mul.7.")
    until(browser, lambda: texts(browser, "#count") == ["1 of 43 records"])
    top, decades = browser.execute_script(
        "const { plot } = table; return [plot.plot.over.offsetTop, plot.highest - plot.lowest]"
    )
    assert top >= 16
    assert decades >= 2


def test_a_point_keeps_its_number_when_a_search_leaves_others_out(browser: Any) -> None:
    browser.find_element("id", "search").send_keys("mul.7")
    until(browser, lambda: texts(browser, "#count") == ["1 of 43 records"])
    assert browser.execute_script("return table.plot.drawn.map(({ point }) => point.place)") == [7]
    assert "7" in texts_drawn_on(browser, "table.drawPlot()")


@pytest.mark.parametrize("pixels", [400, 900])
def test_how_far_a_record_is_from_its_limit_is_in_sight_on_a_narrow_screen(browser: Any, pixels: int) -> None:
    set_width(browser, pixels)
    try:
        browser.refresh()
        until(browser, lambda: texts(browser, "#scroller td:nth-child(3)")[:1] == ["50"])
        ends = "const right = (one) => document.querySelector(one).getBoundingClientRect().right;"
        assert browser.execute_script(f"{ends} return right('#scroller td:nth-child(3)') <= right('#scroller')")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_text_of_the_limit_hides_no_failure(driver: Any, tmp_path: Path) -> None:
    # The plot is a picture: the color in the middle of a record's mark says whether it can be seen.
    shown = """
        const { plot } = table, pen = plot.plot.ctx, { canvas } = pen, ratio = canvas.width / canvas.clientWidth;
        const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
        const colorAt = ({ x, y }) => {
          const start = 4 * (Math.round(y * ratio) * canvas.width + Math.round(x * ratio));
          return `#${[...data.slice(start, start + 3)].map((one) => one.toString(16).padStart(2, "0")).join("")}`;
        };
        const failed = themeColour("fail");
        return table.plot.drawn.filter((one) => one.point.isMarked).map((one) => colorAt(one) === failed);
    """
    right = [make_judged(f"Torch.mul.{place}.forward", "pass", 0.5) for place in range(30)]
    first, last = ([make_judged(f"Functional.{name}.{at}.forward", "fail", 1.5) for at in range(2)] for name in "ab")
    driver.get(_write(tmp_path, [*first, *right, *last]))
    assert driver.execute_script(shown) == [True] * 4


def test_ticks_of_the_plot_do_not_run_into_each_other(driver: Any, tmp_path: Path) -> None:
    spied = """
        const { plot } = table, rows = [], draw = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
          if (plot.box.contains(this.canvas) && this.textAlign === "right") rows.push(y);
          return draw.apply(this, arguments);
        };
        table.drawPlot();
        setTimeout(() => {
          CanvasRenderingContext2D.prototype.fillText = draw;
          arguments[0](rows.sort((a, b) => a - b));
        });
    """
    margins = (0.0, 1e-4, 0.5, 100.0, float("inf"))
    results = [make_judged(f"Torch.mul.{at}.forward", "fail", margin) for at, margin in enumerate(margins)]
    driver.get(_write(tmp_path, results))
    rows = driver.execute_async_script(spied)
    assert len(rows) > 4
    assert min(below - above for above, below in pairwise(rows)) >= 12


def test_no_title_of_a_column_is_cut_when_it_is_sorted_by(browser: Any) -> None:
    set_width(browser, 1400)
    try:
        cut = browser.execute_script("""
            const titles = () => [...document.querySelectorAll("#scroller th button")];
            return titles().map((_, place) => {
              titles()[place].click();
              const title = titles()[place];
              return title.scrollWidth > title.clientWidth ? title.textContent : "";
            }).filter(Boolean);
        """)
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert cut == []


def test_a_link_to_a_record_opens_it(browser: Any) -> None:
    click(browser, "document.querySelector('#details li button')")
    link = browser.current_url
    browser.get("about:blank")
    browser.get(link)
    assert texts(browser, "#details h2") == [WORST]


def test_paper_has_the_overview_and_the_failures_in_full(browser: Any) -> None:
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert texts(browser, "#print h2") == ["Overview", WORST, HOSTILE]
    browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert texts(browser, "#print h2") == []


def test_a_narrow_screen_scrolls_down_and_not_to_the_side(browser: Any) -> None:
    click(browser, "document.querySelector('#details li button')")
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    )
    try:
        wide, tall = browser.execute_script(
            "const root = document.scrollingElement; return [root.scrollWidth, root.scrollHeight]"
        )
        assert wide <= 400
        assert tall > 800
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_several_runs_are_shown_next_to_each_other(driver: Any, tmp_path: Path) -> None:
    driver.get(_write(tmp_path, [_worst()], [make_judged(WORST, "pass", 0.25)]))

    assert texts(driver, "#title") == ["1 of 2 records of 2 runs failed"]
    click(driver, "document.querySelector('#details li button')")
    assert texts(driver, "#details li")[0].startswith("pass 0.25 on npu:3")
    click(driver, "document.querySelector('#details li button')")
    assert texts(driver, "#details dd.pass") == ["pass"]
    assert driver.get_log("browser") == []


def test_a_hundred_thousand_records_fit_into_twenty_mebibytes(driver: Any, tmp_path: Path) -> None:
    from pytest_msprobe.reports.check_page import write_verdicts_page
    from pytest_msprobe.reports.check_page.rows import CheckedRecord, Rows, RunFacts

    rows, worst = Rows(), _worst()
    for place in range(100_000):
        name = f"Functional.operation_{place % 200}.{place}.forward"
        result = make_judged(name, "pass", 0.5, seconds=0.01) if place % 10 else replace(worst, record=name)
        rows.add(CheckedRecord(0, result, f"rank{place % 8}", "npu:0", ("pytest", "<dump>::<record>"), f"d::{name}"))
    path = tmp_path / "page.html"
    write_verdicts_page(path, [RunFacts("run", "", [], {})], rows)

    driver.get(path.as_uri())

    assert path.stat().st_size < 20 * 2**20
    assert texts(driver, "#count") == ["100\u202f000 of 100\u202f000 records"]
    assert len(driver.find_elements("css selector", "#scroller tbody tr")) < 100
    assert driver.get_log("browser") == []
