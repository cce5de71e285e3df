"""The page of monitored runs, looked at in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pytest

from msprobe_hooks.extensions.monitor.series.blocks import StepTime, append_step_time
from msprobe_hooks.extensions.monitor.series.reader import SeriesKey
from pytest_msprobe.extensions.monitor.page import write_html
from pytest_msprobe.extensions.monitor.page.build import Finding, RankRuns, build_page
from tests.support.browser.chromium import click, set_width, texts, until
from tests.support.dumps.watched import norm, write_norms

LAYERS = 5
FINDING = Finding(0, norm("layers.2.weight"), 7, "fail", "drift", "apart by 0.1")

pytestmark = pytest.mark.slow


def norms(scale: float = 1.0, steps: int = 20) -> dict[SeriesKey, Sequence[float]]:
    """Return the norms of a run; from step 7 on, layers 2 and below are scaled."""
    changed = np.where(np.arange(steps) < 7, 1.0, scale)
    layers = {
        norm(f"layers.{layer}.weight"): (2.0 + np.sin(np.arange(steps) + layer)) * (changed if layer < 3 else 1)
        for layer in reversed(range(LAYERS))
    }
    return {norm("layers.0.output", "actv"): np.ones(steps), **layers}


@pytest.fixture
def look(browser: Any, tmp_path: Path) -> Callable[..., Any]:
    """Write a page, open it, and return the browser."""

    def open_page(
        *ranks: Mapping[SeriesKey, Sequence[float]],
        golden: Mapping[SeriesKey, Sequence[float]] | None = None,
        findings: Sequence[Finding] = (),
        verdict: str = "",
        times: Sequence[float] = (),
    ) -> Any:
        runs = []
        for place, series in enumerate(ranks):
            target = write_norms(tmp_path / f"target{place}", series)
            for step, ended in enumerate(times):
                append_step_time(target.folder, StepTime(step, ended))
            other = write_norms(tmp_path / f"golden{place}", golden) if golden else None
            runs.append(RankRuns(f"rank {place}", target.keys, target, other))
        page = build_page(runs, findings, title="target against golden", about="about", verdict=verdict)
        write_html(tmp_path / "page.html", page)
        browser.get_log("browser")
        browser.get((tmp_path / "page.html").as_uri())
        return browser

    return open_page


def colour_at(browser: Any, row: int, column: int) -> list[int]:
    """Return the middle of a cell's colour as red, green, blue."""
    script = """const [row, column] = arguments, [x, y] = heatMap.middle({ row, column }), ratio = devicePixelRatio;
        const pen = heatMap.canvas.getContext("2d");
        return [...pen.getImageData((x + 3) * ratio, (y + 6) * ratio, 1, 1).data].slice(0, 3)"""
    found: list[int] = browser.execute_script(script, row, column)
    return found


def press(browser: Any, *keys: str) -> None:
    browser.find_element("css selector", ".cells canvas").send_keys(*keys)


def test_the_first_departure_leads_and_its_curves_are_open(look: Callable[..., Any]) -> None:
    browser = look(norms(1.1), golden=norms(), findings=[FINDING], verdict="first departure: step 7")
    assert texts(browser, "h1") == ["first departure: step 7"]
    assert texts(browser, "#lead button") == [FINDING.message]
    assert texts(browser, "#details h2") == ["layers.2.weight"]
    assert texts(browser, "#readout")[0].startswith("step 7: target ")
    assert texts(browser, "#readout")[0].endswith("apart by about 0.09")
    assert browser.get_log("browser") == []


def test_the_cursors_of_all_plots_are_at_the_chosen_step(look: Callable[..., Any]) -> None:
    browser = look(norms(1.1), golden=norms(), findings=[FINDING])
    at = "return curves.plots.slice(0, 2).map(({ plot: { cursor, over } }) => cursor.left / over.clientWidth)"
    assert browser.execute_script(at) == pytest.approx([7 / 19] * 2, abs=0.01)
    hover = """const { over } = curves.plots[0].plot, { left, top, width } = over.getBoundingClientRect();
        const place = { clientX: left + (width * 3) / 19, clientY: top, movementX: 1 };
        over.dispatchEvent(new MouseEvent("mousemove", place))"""
    browser.execute_script(hover)
    assert browser.execute_script(at) == pytest.approx([3 / 19] * 2, abs=0.01)
    assert texts(browser, "#readout")[0].startswith("step 3: ")


def test_cells_are_coloured_by_how_far_apart_the_runs_are(look: Callable[..., Any]) -> None:
    # Rows: layers.0.output, then the weights from the last layer to the first.
    browser = look(norms(1.1), golden=norms())
    same, apart = colour_at(browser, 1, 12), colour_at(browser, 5, 12)
    assert colour_at(browser, 5, 3) == same
    assert apart != same
    assert colour_at(browser, 3, 12) == apart


def test_a_run_alone_is_coloured_by_size(look: Callable[..., Any]) -> None:
    browser = look(norms(1000.0))
    assert colour_at(browser, 5, 12) != colour_at(browser, 5, 3)
    assert texts(browser, "#details h2") == ["layers.0.output"]


def test_a_value_that_is_not_finite_stands_out(look: Callable[..., Any]) -> None:
    series = norms()
    series[norm("layers.1.weight")] = np.where(np.arange(20) == 5, np.nan, 1.0)
    browser = look(series)
    purple = colour_at(browser, 4, 5)
    assert purple == [0xA2, 0x1C, 0xAF]
    press(browser, *["\ue015"] * 4)
    assert texts(browser, "#details h2") == ["layers.1.weight"]
    assert browser.execute_script("return curves.plots[0].notFinite.map(([step]) => step)") == [5]


def test_arrow_keys_move_and_show_the_cell(look: Callable[..., Any]) -> None:
    browser = look(norms(1.1), golden=norms())
    press(browser, "\ue015", "\ue014", "\ue014")  # down, right, right
    (reported,) = texts(browser, "#map-box [role=status]")
    assert reported.startswith("layers.4.weight (grad_reduced), step 2: target ")
    assert reported.endswith(", equal")


def test_findings_are_a_table_that_leads_to_curves(look: Callable[..., Any]) -> None:
    other = Finding(0, norm("layers.4.weight"), 12, "warn", "turbulence", "2.1 above 1.9")
    browser = look(norms(1.1), golden=norms(), findings=[FINDING, other])
    cells = texts(browser, "#findings tbody tr:nth-child(3) td")
    assert cells == ["12", "warn", "layers.4.weight (grad_reduced)", "norm", "turbulence", "2.1 above 1.9"]
    click(browser, "document.querySelectorAll('#findings tbody tr')[2]")
    assert texts(browser, "#details h2") == ["layers.4.weight"]
    assert texts(browser, "#readout")[0].startswith("step 12: ")


def test_the_curve_shows_what_was_before_an_explosion(look: Callable[..., Any]) -> None:
    key = norm("layers.0.output", "actv")
    healthy = 13 + np.arange(41) % 5
    series = {key: [1e-9, *healthy, *10.0 ** np.arange(3, 25, 3)]}
    browser = look(series, findings=[Finding(0, key, 42, "fail", "explosion", "1000 after 13")])
    scale, below = browser.execute_script("const [{ scale, below }] = curves.plots; return [scale, below]")
    assert scale["isLog"]
    # A decade below the least healthy value, whose curve would else be taken for the axis.
    assert scale["low"] == 1
    assert scale["high"] >= 1e24
    assert [step for step, *_ in below] == [0]
    x = browser.execute_script("return curves.plots[0].plot.valToPos(42, 'x')")
    assert 0 < x < browser.execute_script("return curves.plots[0].plot.over.clientWidth")


def test_the_curve_shows_the_few_steps_before_an_explosion_that_lasts(look: Callable[..., Any]) -> None:
    key = norm("layers.0.output", "actv")
    series = {key: [*[13.0] * 3, *10.0 ** (12 + np.arange(400) % 12)]}
    browser = look(series, findings=[Finding(0, key, 3, "fail", "explosion", "1e12 after 13")])
    scale, below = browser.execute_script("const [{ scale, below }] = curves.plots; return [scale, below]")
    assert scale["low"] <= 10
    assert below == []


def test_the_scale_is_that_of_the_steps_in_sight(look: Callable[..., Any]) -> None:
    key = norm("layers.0.output", "actv")
    browser = look({key: [*(13 + np.arange(40) % 5), *10.0 ** np.arange(3, 25, 3)]})
    browser.execute_script("heatMap.showColumns(0, 40)")
    scale = browser.execute_script("return curves.plots[0].scale")
    assert not scale["isLog"]
    assert 12 < scale["low"] < 13
    assert 17 < scale["high"] < 18


def test_a_smoothed_curve_is_the_mean_of_what_was_before_with_falling_weights(look: Callable[..., Any]) -> None:
    key = norm("layers.0.output", "actv")
    browser = look({key: [1.0, 3.0, 2.0, 8.0]})
    browser.execute_script("byId('smoothing').value = 0.5; byId('smoothing').dispatchEvent(new Event('change'))")
    values = browser.execute_script("return curves.plots[0].lines.at(-1).low")
    weights = [0.5**back for back in range(4)]
    expected = [
        sum(w * x for w, x in zip(weights, reversed([1.0, 3.0, 2.0, 8.0][: end + 1]), strict=False))
        / sum(weights[: end + 1])
        for end in range(4)
    ]
    assert values == pytest.approx(expected)
    assert browser.execute_script("return curves.plots[0].lines[0].isFaint")


def test_the_numbers_of_a_plot_are_downloaded(look: Callable[..., Any]) -> None:
    browser = look({norm("layers.0.output", "actv"): [1.0, float("nan"), 0.25]})
    assert browser.execute_script("return csvOf(state.rows[0])").splitlines() == [
        "step,target",
        "0,1",
        "1,NaN",
        "2,0.25",
    ]


def test_bins_are_at_whole_steps(look: Callable[..., Any]) -> None:
    browser = look({norm("layers.0.output", "actv"): [*range(1000)]})
    steps = [line.split(",")[0] for line in browser.execute_script("return csvOf(state.rows[0])").splitlines()[1:]]
    assert len(steps) == 400
    assert all(step.isdigit() for step in steps)


def test_a_drag_over_a_plot_zooms_the_map_and_a_double_click_takes_it_back(look: Callable[..., Any]) -> None:
    from selenium.webdriver import ActionChains

    browser = look(norms())
    over = browser.find_element("css selector", ".curve-plot .u-over")
    ActionChains(browser).move_to_element_with_offset(over, -100, 0).click_and_hold().move_by_offset(
        120, 0
    ).release().perform()
    until(browser, lambda: browser.execute_script("return heatMap.to - heatMap.from") < 20)
    first, last = browser.execute_script("const { min, max } = curves.plots[0].plot.scales.x; return [min, max]")
    assert first > 0
    assert last < 19
    browser.execute_script("document.querySelector('.curve-plot').dispatchEvent(new MouseEvent('dblclick'))")
    assert browser.execute_script("return heatMap.to - heatMap.from") == 20


@pytest.mark.parametrize(
    ("fragment", "name", "readout"),
    [
        ("rank 0/grad_reduced/layers.2.weight/norm", "layers.2.weight", ""),
        ("rank 0/grad_reduced/layers.2.weight/norm@12", "layers.2.weight", "step 12: 2.9906"),
        ("rank 0/grad_reduced/none/norm@12", "layers.0.output", ""),
    ],
)
def test_a_link_opens_the_curves_of_a_series_at_a_step(
    look: Callable[..., Any], fragment: str, name: str, readout: str
) -> None:
    browser = look(norms())
    address = browser.current_url
    browser.get("about:blank")
    browser.get(f"{address}#{quote(fragment, safe='')}")
    assert texts(browser, "#details h2") == [name]
    assert texts(browser, "#readout") == [readout]


def test_a_link_leads_to_the_chosen_step(look: Callable[..., Any]) -> None:
    browser = look(norms())
    press(browser, "\ue015", "\ue014", "\ue014")  # down, right, right
    browser.execute_script("document.execCommand = () => { window.copied = document.activeElement.value; }")
    click(browser, "document.querySelector('#details button.link')")
    copied = browser.execute_script("return window.copied")
    assert unquote(copied).endswith("#rank 0/grad_reduced/layers.4.weight/norm@2")


def test_searching_and_findings_choose_rows(look: Callable[..., Any]) -> None:
    browser = look(norms(1.1), golden=norms(), findings=[FINDING])
    click(browser, "document.getElementById('found')")
    assert texts(browser, "#count") == ["1 of 6 tensors"]
    click(browser, "document.getElementById('found')")
    select = "const one = byId('task'); one.value = 'actv'; one.dispatchEvent(new Event('change'))"
    browser.execute_script(select)
    assert texts(browser, "#count") == ["1 of 6 tensors"]


def test_ranks_are_small_multiples_that_lead_to_them(look: Callable[..., Any]) -> None:
    browser = look(norms(), norms(2.0), norms())
    assert texts(browser, "#details h3")[-1] == "norm by rank"
    assert texts(browser, "#details .figure .caption") == ["rank 0", "rank 1", "rank 2"]
    click(browser, "{click: () => document.querySelectorAll('#details .figure')[1].dispatchEvent(new Event('click'))}")
    assert browser.execute_script("return byId('rank').value") == "1"


@pytest.mark.parametrize("name", ["</script><script>document.title='taken'</script>", "<img src=x onerror=alert(1)>"])
def test_a_hostile_name_is_text(look: Callable[..., Any], name: str) -> None:
    key = norm(name)
    browser = look({key: [1.0, 2.0]}, findings=[Finding(0, key, 1, "fail", name, name)], verdict=name)
    assert texts(browser, "h1") == [name]
    assert texts(browser, "#details h2") == [name]
    assert browser.get_log("browser") == []


def test_a_long_run_shows_every_step_where_something_was_found(look: Callable[..., Any]) -> None:
    browser = look(norms(1.1, 2000), golden=norms(1.0, 2000), findings=[FINDING])
    assert "every step" in texts(browser, "#details h3")[0]
    browser.execute_script("heatMap.showColumns(0, 4)")
    shown = (
        "const { data, scales } = curves.plots[0].plot; return data[0].filter((step) => step <= scales.x.max).length"
    )
    assert browser.execute_script(shown) == 20


def test_the_rows_of_all_ranks_stand_under_each_other(look: Callable[..., Any]) -> None:
    browser = look(
        norms(), norms(1.1), golden=norms(), findings=[Finding(1, norm("layers.2.weight"), 7, "fail", "drift", "")]
    )
    browser.execute_script(
        """const ranks = byId("rank"); ranks.value = "-1"; ranks.dispatchEvent(new Event("change"))"""
    )
    assert texts(browser, "#count") == ["12 of 12 rows, one for each tensor and rank"]
    assert browser.execute_script("return state.rows.map(rowText).slice(6, 8)") == [
        "layers.2.weight, rank 0",
        "layers.2.weight, rank 1",
    ]
    healthy, faulty = colour_at(browser, 6, 12), colour_at(browser, 7, 12)
    assert healthy != faulty
    click(browser, "byId('found')")
    assert browser.execute_script("return state.rows.map(rowText)") == ["layers.2.weight, rank 1"]


def choose(browser: Any, label: str, option: str) -> None:
    """Choose an option of a list above the curve."""
    script = """const [label, option] = arguments;
        const labels = [...document.querySelectorAll(".curve-controls label")];
        const list = labels.find((one) => one.textContent.startsWith(label)).querySelector("select");
        list.value = option; list.dispatchEvent(new Event("change"))"""
    browser.execute_script(script, label, option)


def test_the_axis_of_curves_is_in_times_where_the_run_holds_them(look: Callable[..., Any]) -> None:
    # An hour passes before step 10, a second before each other step.
    ends = [1.7e9 + step + (3600 if step >= 10 else 0) for step in range(20)]
    browser = look(norms(), times=ends)
    choose(browser, "axis", "time")
    places = browser.execute_script(
        "const { plot, place } = curves.plots[0], { clientWidth } = plot.over;"
        "return [0, 9, 10, 19].map((step) => plot.valToPos(place(step), 'x') / clientWidth)"
    )
    assert places == pytest.approx([0, 9 / 3619, 3610 / 3619, 1], abs=1e-3)
    assert browser.execute_script("return curves.plots[0].plot.axes[0].label") == "time"
    hovered = """const { plot, place } = curves.plots[0], { left, top } = plot.over.getBoundingClientRect();
        return [0, 9, 10, 19].map((step) => {
          const clientX = left + plot.valToPos(place(step), "x");
          plot.over.dispatchEvent(new MouseEvent("mousemove", { clientX, clientY: top }));
          return byId("readout").textContent.split(" (")[0];
        })"""
    assert browser.execute_script(hovered) == ["step 0", "step 9", "step 10", "step 19"]
    press(browser, "\ue014", "\ue014")
    assert texts(browser, "#readout")[0].startswith("step 2 (")
    choose(browser, "axis", "step")
    assert browser.execute_script("return curves.plots[0].plot.axes[0].label") == "step"
    assert browser.get_log("browser") == []


def test_downloaded_numbers_have_the_times_of_their_steps(look: Callable[..., Any]) -> None:
    browser = look(norms(), times=[1.7e9 + step for step in range(20)])
    lines = browser.execute_script("return csvOf(state.rows[0])").split("\n")
    assert lines[:2] == ["step,time,target", "0,2023-11-14T22:13:20.000Z,1"]


def test_a_run_without_times_has_no_choice_of_axes(look: Callable[..., Any]) -> None:
    assert not look(norms()).find_element("id", "axis").is_displayed()


def drawn(browser: Any) -> list[str]:
    """Return the texts of the heat map, as it draws them."""
    script = """const made = [], { fillText } = CanvasRenderingContext2D.prototype;
        CanvasRenderingContext2D.prototype.fillText = (text) => made.push(String(text));
        heatMap.draw();
        CanvasRenderingContext2D.prototype.fillText = fillText;
        return made"""
    found: list[str] = browser.execute_script(script)
    return found


def many_rows(rows: int) -> dict[SeriesKey, Sequence[float]]:
    """Return the norms of one output and of many weights, so that a row is lower than a name."""
    weights = {norm(f"layers.{row}.weight"): [1.0, 2.0] for row in range(rows)}
    return {norm("layers.0.output", "actv"): [1.0, 2.0], **weights, norm("loss", "other"): [1.0, 2.0]}


def test_each_group_of_rows_has_its_name_however_low_rows_are(look: Callable[..., Any]) -> None:
    names = drawn(look(many_rows(400)))
    assert sum("(" in name for name in names) == 3
    assert {"layers.0.output (actv)", "loss (other)"} <= {*names}
    assert any(name.endswith(" (grad_reduced)") for name in names)


def test_rows_of_one_group_do_not_repeat_its_name(look: Callable[..., Any]) -> None:
    assert "layers.1.weight" in drawn(look({norm(f"layers.{row}.weight"): [1.0, 2.0] for row in range(3)}))


def test_plus_makes_rows_higher_until_they_have_names_and_then_shows_fewer_steps(look: Callable[..., Any]) -> None:
    browser = look({key: [1.0] * 100 for key in many_rows(200)})
    heights = []
    while browser.execute_script("return heatMap.to - heatMap.from") == 100:
        heights.append(browser.execute_script("return heatMap.row"))
        press(browser, "+")
    assert heights == sorted(heights)
    assert heights[-1] > 12
    assert browser.execute_script("return heatMap.to - heatMap.from") == 50
    press(browser, "0")
    assert browser.execute_script("return [heatMap.row, heatMap.to - heatMap.from]") == [heights[0], 100]


def test_the_steps_above_the_map_are_round_ones(look: Callable[..., Any]) -> None:
    browser = look({norm("layers.0.output", "actv"): [1.0] * 950})
    steps = [int(text) for text in drawn(browser) if text.isdigit()]
    assert len(steps) > 4
    assert {step % 50 for step in steps} == {0}
    assert steps[-1] > 800


def test_a_map_of_few_rows_fills_its_place_with_high_ones(look: Callable[..., Any]) -> None:
    browser = look({norm(f"layers.{row}.weight"): [1.0, 2.0] for row in range(14)})
    height, room = browser.execute_script("return [heatMap.height, byId('map-box').clientHeight]")
    assert height > 0.7 * room


def test_words_of_the_legend_stay_with_their_colour(look: Callable[..., Any]) -> None:
    browser = look(norms())
    set_width(browser, 400)
    square, words = browser.execute_script(
        """const one = document.querySelector("#legend span:last-child"), range = document.createRange();
        range.selectNode(one.lastChild);
        return [one.querySelector("i"), range].map((each) => each.getBoundingClientRect().top)"""
    )
    set_width(browser, 1500)
    assert abs(square - words) < 8
