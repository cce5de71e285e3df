"""The page of a comparison, looked at in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from selenium.webdriver.common.keys import Keys

from msprobe_hooks.dump.values import Value
from pytest_msprobe.modes.compare.reports.html import write_html
from pytest_msprobe.modes.compare.rows import ComparedCall, Row
from tests.support.browser.chromium import click, set_system_theme, set_width, texts, until

pytestmark = pytest.mark.slow


def call(place: int, outcome: Any = "pass", record: str | None = None, **fields: Any) -> ComparedCall:
    name = record or f"Functional.linear.{place}.forward"
    error = fields.pop("error", 1e-8)
    fields = {"pair": 0, "module": f"Module.model.layers.{place % 3}.mlp.Linear.forward.0"} | fields

    def row(group: Any, outcome: Any) -> Row:
        value = Value(f"{name}.{group}.0", "torch.Tensor", "torch.float32", (2, 3), False, (1.0, -1.0, 0.5, 2.0))
        counts = (4, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0)
        metrics = {"scaled_error": error, "cosine_sim": 0.5}
        return Row(
            group=group,
            place=f"{group}.0",
            target=value,
            golden=value,
            outcome=outcome,
            metrics=metrics,
            histogram=counts,
        )

    rows = (row("input", "pass"), row("output", outcome))
    return ComparedCall(
        record=name,
        order=place,
        mode="tensor",
        target=name,
        golden=name,
        partner="name",
        outcome=outcome,
        stack=("File a.py",),
        rows=rows,
        **fields,
    )


@pytest.fixture
def look(browser: Any, tmp_path: Path) -> Callable[..., Any]:
    """Write a page, open it, and return the browser."""

    def open_page(calls: list[ComparedCall], pairs: tuple[str, ...] = ("step0 rank0",), **more: Any) -> Any:
        title, about = "target against golden", "policy default"
        write_html(tmp_path / "page.html", calls, title=title, about=about, pairs=list(pairs), **more)
        browser.get_log("browser")
        browser.get((tmp_path / "page.html").as_uri())
        return browser

    return open_page


def names(browser: Any) -> list[str]:
    return texts(browser, "#scroller tbody tr:not(.gap) td:nth-child(2)")


def test_the_page_opens_without_errors_and_shows_every_value(look: Callable[..., Any]) -> None:
    browser = look([call(0), call(1, "fail", cause="culprit")])
    assert texts(browser, "h1") == ["1 of 4 values differs, first in Functional.linear.1.forward"]
    assert texts(browser, "#about") == ["target against golden, policy default"]
    assert names(browser) == [
        f"Functional.linear.{place}.forward.{group}.0" for place in (0, 1) for group in ("input", "output")
    ]
    assert browser.get_log("browser") == []


def test_the_first_culprit_is_named_and_leads_to_its_row(look: Callable[..., Any]) -> None:
    browser = look([call(0), call(1, "fail", cause="culprit", reason="the forward computation differs")])
    assert texts(browser, "#culprits button") == ["first culprit: Functional.linear.1.forward"]
    click(browser, "document.querySelector('#culprits button')")
    assert texts(browser, "#details h2") == ["Functional.linear.1.forward.output.0"]
    assert "the forward computation differs" in texts(browser, "#details pre")


RANKS = [(step, rank) for step in range(2) for rank in range(3)]


def of_ranks(*culprits: tuple[int, int]) -> dict[str, Any]:
    """Return a page of six pairs, of two calls each, of which the second differs at these steps and ranks."""
    calls = [
        call(
            2 * pair + place,
            **({"outcome": "fail", "cause": "culprit"} if place and where in culprits else {}),
            pair=pair,
        )
        for pair, where in enumerate(RANKS)
        for place in range(2)
    ]
    pairs = tuple(f"step {step}, rank {rank}" for step, rank in RANKS)
    return {
        "calls": calls,
        "pairs": pairs,
        "places": [(*where, f"run/{pair}/dump.json") for pair, where in enumerate(RANKS)],
    }


def test_of_ranks_and_steps_the_title_says_how_many_values_differ_and_where_first(look: Callable[..., Any]) -> None:
    browser = look(**of_ranks((0, 2), (1, 0), (1, 2)))
    assert texts(browser, "h1") == ["3 of 24 values differ, first at step 0, rank 2"]
    assert texts(browser, "#details dd")[2:4] == ["0", "2"]


def test_each_rank_that_differs_has_a_chip_that_leads_to_its_first_culprit(look: Callable[..., Any]) -> None:
    browser = look(**of_ranks((0, 2), (1, 0), (1, 2)))
    assert [text.partition(":")[0] for text in texts(browser, "#culprits button")] == [
        "step 0, rank 2",
        "step 1, rank 0",
    ]
    click(browser, "document.querySelector('#culprits button:last-child')")
    assert texts(browser, "#details dd")[2:4] == ["1", "0"]


def test_rows_of_ranks_and_steps_have_a_column_for_each(look: Callable[..., Any]) -> None:
    browser = look(**of_ranks((1, 1)))
    assert texts(browser, "#scroller th")[3:5] == ["Step", "Rank"]
    assert texts(browser, "#scroller tr.chosen td")[3:5] == ["1", "1"]
    assert texts(look([call(0)]), "#scroller th")[1] == "Value"


@pytest.mark.parametrize("width", [400, 900])
def test_of_ranks_and_steps_the_error_is_in_sight_on_a_narrow_screen(look: Callable[..., Any], width: int) -> None:
    browser = look(**of_ranks((1, 1)))
    set_width(browser, width)
    try:
        browser.refresh()
        error = browser.find_element("css selector", "#scroller th:nth-child(3)")
        assert error.text == "scaled_error"
        ends = "const [one, all] = [...arguments].map((box) => box.getBoundingClientRect().right); return one <= all"
        table = browser.find_element("id", "scroller")
        assert browser.execute_script(ends, error, table)
    finally:
        set_width(browser, 1500)


def test_no_line_ends_within_a_number(look: Callable[..., Any]) -> None:
    reason = " ".join(f"{place}.19e-04" for place in range(100, 200))
    browser = look([call(0, "fail", cause="culprit", reason=reason)])
    lines = "return [...document.querySelectorAll('#details pre .whole')].map((one) => one.getClientRects().length)"
    assert browser.execute_script(lines) == [1] * 100
    assert texts(browser, "#details pre")[0].split() == reason.split()


def test_the_largest_number_is_written_in_digits(look: Callable[..., Any]) -> None:
    browser = look([call(0)])
    written = [["1.7977e308", 1.7976931348623157e308], ["1e-8", 1e-8], ["5.1923e-4", 0.000519234], ["2e6", 2_000_000]]
    for text, number in written:
        assert browser.execute_script("return numberText(arguments[0])", number) == text


def test_a_page_where_all_is_equal_says_so(look: Callable[..., Any]) -> None:
    assert texts(look([call(0)]), "h1") == ["none of 2 values differs"]


def test_an_open_value_has_the_commands_on_its_call(look: Callable[..., Any]) -> None:
    commands = [
        ("Run this item alone", ["pytest", "--msprobe-compare=<dump>::<record>", "-k", "a b"]),
        ("Check this call", ["pytest", "--msprobe-dump=<dump>::<call>"]),
        ("Save it", ["<rerun>", "--msprobe-save-failures=failures"]),
    ]
    browser = look(**of_ranks((0, 1)), commands=commands)
    click(browser, "document.querySelector('#details .further summary')")
    assert texts(browser, "#details .command pre") == [
        "pytest --msprobe-compare=run/1/dump.json::Functional.linear.3.forward -k 'a b'",
        "pytest --msprobe-dump=run/1/dump.json::Functional.linear.3.forward",
    ]


def test_a_call_of_a_module_has_no_command_that_checks_it(look: Callable[..., Any]) -> None:
    commands = [("Check this call", ["pytest", "--msprobe-dump=<dump>::<call>"])]
    module = call(0, "fail", record="Module.block.Linear.forward.0", cause="culprit")
    browser = look([module], places=[(None, None, "dump.json")], commands=commands)
    assert texts(browser, "#details .command") == []


def test_the_way_back_leads_to_the_value_that_was_open_before(look: Callable[..., Any]) -> None:
    browser = look(**of_ranks((0, 2), (1, 0)))
    first = texts(browser, "#details h2")
    click(browser, "document.querySelector('#culprits button:last-child')")
    assert texts(browser, "#details h2") != first
    browser.back()
    until(browser, lambda: texts(browser, "#details h2") == first)


def test_the_tree_of_modules_is_one_stop_of_the_tab_key(look: Callable[..., Any]) -> None:
    browser = look([call(0), call(1, "fail", cause="culprit")])
    stops = "return [...byId('groups').querySelectorAll('button')].filter((one) => one.tabIndex === 0).length"
    assert browser.execute_script(stops) == 1
    browser.execute_script("byId('groups').querySelector('button').focus()")
    browser.switch_to.active_element.send_keys("\ue015")
    assert browser.switch_to.active_element.text.splitlines()[0] == "model"


def test_the_page_opens_at_the_first_culprit(look: Callable[..., Any]) -> None:
    calls = [call(place) for place in range(400)]
    browser = look([*calls, call(400, "fail", cause="culprit", error=0.5), call(401, "fail", cause="inherited")])
    assert texts(browser, "#details h2") == ["Functional.linear.400.forward.output.0"]
    until(browser, lambda: "Functional.linear.400.forward.output.0" in names(browser))
    assert texts(browser, "#count") == ["804 of 804 values"]
    assert texts(browser, "#scroller tbody tr.chosen td:nth-child(2)") == ["Functional.linear.400.forward.output.0"]


def test_arrows_and_letters_go_from_value_to_value_and_from_culprit_to_culprit(look: Callable[..., Any]) -> None:
    browser = look([call(0, "fail", cause="culprit"), call(1), call(2, "fail", cause="culprit")])
    went = []
    for key in ("\ue015", "n", "p"):
        browser.find_element("id", "scroller").send_keys(key)
        went += texts(browser, "#details h2")
    assert went == [
        "Functional.linear.1.forward.input.0",
        "Functional.linear.2.forward.output.0",
        "Functional.linear.0.forward.output.0",
    ]


def test_the_plot_says_what_its_axes_limits_and_marks_are(look: Callable[..., Any]) -> None:
    browser = look([call(0, error=0.0), call(1, "fail", cause="culprit", error=0.5)], limits={"float32": 2.4e-4})
    assert texts(browser, ".legend li") == ["a difference begins here", "wrong", "equal enough", "limit"]
    drawn = (
        "const drawn = []; const keep = CanvasRenderingContext2D.prototype.fillText;"
        "CanvasRenderingContext2D.prototype.fillText = function (text) { drawn.push(text); };"
        "plot(); setTimeout(() => { CanvasRenderingContext2D.prototype.fillText = keep; arguments[0](drawn); })"
    )
    written = browser.execute_async_script(drawn)
    assert {"call, in execution order", "scaled error", "fails above 0.00024 in float32", "0"} <= set(written)
    # Zero stands below the least power that is drawn.
    heights = browser.execute_script("return table.plot.drawn.map((found) => found.y)")
    assert heights[0] > heights[1]
    assert browser.execute_script("return table.plot.plot.valToPos(table.plot.lowest, 'y') < table.plot.drawn[0].y")


def test_the_page_says_what_holds_of_the_runs_as_a_whole(look: Callable[..., Any]) -> None:
    assert texts(look([call(0)], notes=["the runs had other input shapes"]), "#notes p") == [
        "the runs had other input shapes"
    ]


def test_nothing_leaves_the_screen_of_a_telephone(look: Callable[..., Any]) -> None:
    browser = look([call(0), call(1, "fail", cause="culprit", module="Module.a.post_attention_layernorm.B.forward.0")])
    size = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        browser.refresh()
        assert browser.execute_script("return document.documentElement.scrollWidth") == 400
        widths = [browser.find_element("id", name).size["width"] for name in ("search", "scroller", "plot", "details")]
        assert all(300 <= width <= 400 for width in widths)
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_searching_leaves_what_holds_every_word(look: Callable[..., Any]) -> None:
    browser = look([call(place) for place in range(30)])
    browser.find_element("id", "search").send_keys("linear.7. OUTPUT")
    until(browser, lambda: names(browser) == ["Functional.linear.7.forward.output.0"])
    assert texts(browser, "#count") == ["1 of 60 values"]


def test_a_column_sorts_down_then_up_then_not(look: Callable[..., Any]) -> None:
    browser = look([call(0, error=1e-3), call(1, error=float("inf")), call(2, error=1e-5)])
    header = "[...document.querySelectorAll('th button')].find((one) => one.textContent.startsWith('scaled_error'))"
    orders = []
    for _ in range(3):
        click(browser, header)
        orders.append([name.split(".")[2] for name in names(browser)][::2])
    assert orders == [["1", "0", "2"], ["2", "0", "1"], ["0", "1", "2"]]


def test_a_module_shows_what_ran_in_it_and_the_worst_of_it(look: Callable[..., Any]) -> None:
    browser = look([call(0), call(1, "fail"), call(2)])
    groups = "#groups .name, #groups .name + span"
    assert texts(browser, groups)[:4] == ["everything", "1 of 3", "model", "1 of 3"]
    click(browser, "[...document.querySelectorAll('#groups .name')].find((one) => one.textContent === '1')")
    assert texts(browser, "#groups [aria-pressed=true] .name + span") == ["1 of 1"]
    assert names(browser) == ["Functional.linear.1.forward.input.0", "Functional.linear.1.forward.output.0"]
    assert browser.find_elements("css selector", "#groups span.fail")


def test_a_module_is_chosen_by_keys_and_everything_shows_all_again(look: Callable[..., Any]) -> None:
    browser = look([call(0), call(1, "fail"), call(2)])
    browser.execute_script("byId('groups').querySelector('button').focus()")
    for key in (Keys.ARROW_DOWN, Keys.ENTER):
        browser.switch_to.active_element.send_keys(key)
    assert texts(browser, "#count") == ["6 of 6 values in model"]
    browser.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    assert browser.switch_to.active_element.text.splitlines()[0] == "layers"
    browser.switch_to.active_element.send_keys(Keys.HOME)
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert texts(browser, "#count") == ["6 of 6 values"]
    assert texts(browser, "#groups [aria-pressed=true] .name") == ["everything"]


def test_the_first_culprit_lists_all_that_is_wrong_in_it_what_it_was_given_first(look: Callable[..., Any]) -> None:
    wrong = call(1, "fail", cause="culprit")
    given = replace(wrong.rows[0], outcome="fail", place="input.0", messages=("0.01 in place of 1e-05",))
    browser = look([call(0), replace(wrong, rows=(wrong.rows[1], given))])
    assert texts(browser, ".wrong-values li") == ["input.0: 0.01 in place of 1e-05", "output.0: fail"]
    click(browser, "document.querySelector('.wrong-values button')")
    assert texts(browser, "#details h2") == ["Functional.linear.1.forward.input.0"]


def test_a_link_opens_the_value_of_its_rank(look: Callable[..., Any]) -> None:
    same = [call(0), call(0, pair=1)]
    browser = look(same, pairs=("rank0", "rank1"))
    click(browser, "document.querySelectorAll('#scroller tbody tr:not(.gap)')[3]")
    link = browser.current_url
    browser.get("about:blank")
    browser.get(link)
    assert browser.execute_script("return page.rows.indexOf(table.chosen())") == 3


def test_counts_of_the_module_tree_are_explained(look: Callable[..., Any]) -> None:
    browser = look([call(0), call(1, "fail")])
    titles = browser.execute_script("return [...document.querySelectorAll('#groups button')].map((one) => one.title)")
    assert "1 of 2 calls wrong" in titles


def test_an_outcome_can_be_left_out(look: Callable[..., Any]) -> None:
    browser = look([call(0), call(1, "fail")])
    click(browser, "document.querySelector('#outcomes .pass')")
    assert names(browser) == ["Functional.linear.1.forward.output.0"]


def test_the_details_show_a_histogram(look: Callable[..., Any]) -> None:
    browser = look([call(0)])
    click(browser, "document.querySelector('#scroller tbody tr:not(.gap)')")
    assert len(browser.find_elements("css selector", "#details svg rect")) == 12


def test_the_plot_is_drawn(look: Callable[..., Any]) -> None:
    browser = look([call(place, error=10.0**-place) for place in range(6)])
    colours = browser.execute_script(
        "const c = table.plot.plot.ctx.canvas;"
        "return new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size"
    )
    assert colours > 5


def test_ranks_are_chosen(look: Callable[..., Any]) -> None:
    browser = look([call(0), call(1, pair=1)], pairs=("rank0", "rank1"))
    browser.execute_script(
        "const one = document.getElementById('pair'); one.value = '1'; one.dispatchEvent(new Event('change'))"
    )
    assert names(browser) == ["Functional.linear.1.forward.input.0", "Functional.linear.1.forward.output.0"]


@pytest.mark.parametrize(
    "name", ["</script><script>document.title='taken'</script>", "<img src=x onerror=alert(1)>", "<!--"]
)
def test_a_hostile_name_is_text(look: Callable[..., Any], name: str) -> None:
    browser = look([call(0, record=name, module=name, reason=name)])
    assert browser.title == "none of 2 values differs"
    assert names(browser)[0] == f"{name}.input.0"
    assert browser.get_log("browser") == []


def test_fifty_thousand_values_can_be_scrolled_through(look: Callable[..., Any]) -> None:
    browser = look([call(place) for place in range(25_000)])
    assert len(browser.find_elements("css selector", "#scroller tbody tr")) < 100
    browser.execute_script("document.getElementById('scroller').scrollTop = 1e9")
    until(browser, lambda: "Functional.linear.24999.forward.output.0" in names(browser))


PAIRS = ("step 0, rank 0", "step 0, rank 1", "step 1, rank 0", "step 1, rank 1")


@pytest.fixture
def step_map(look: Callable[..., Any]) -> Any:
    """Open the map of three modules in four pairs; the second is wrong in the last pair."""
    calls = [call(place, pair=pair) for pair in range(4) for place in range(3)]
    calls[-2] = call(1, "fail", pair=3, cause="culprit", error=0.25)
    browser = look(calls, PAIRS)
    click(browser, "byId('tab-map')")
    return browser


WRONG = "model.layers.1.mlp, step 1, rank 1: 1 of 1 call wrong, greatest scaled error 0.25"


def on_map(browser: Any, *events: str) -> None:
    """Let a pointer do something in the cell of the wrong module."""
    script = """const { left, top } = stepMap.canvas.getBoundingClientRect();
        const [x, y] = stepMap.middle({ row: 1, column: 3 }), place = { clientX: left + x, clientY: top + y };
        for (const name of arguments) stepMap.canvas.dispatchEvent(new MouseEvent(name, place));"""
    browser.execute_script(script, *events)


def test_the_map_shows_where_modules_differ_by_step_and_rank(step_map: Any) -> None:
    (text,) = texts(step_map, "#map p")
    assert "3 modules by step and rank; darker red is a larger error" in text
    colours = step_map.execute_script("""const { width, height } = stepMap.canvas, ratio = devicePixelRatio;
        const { data } = stepMap.canvas.getContext("2d").getImageData(0, 0, width, height);
        return [0, 1, 2].map((row) => [0, 1, 2, 3].map((column) => {
          const [x, y] = stepMap.middle({ row, column }).map((one) => Math.round(one * ratio));
          return [...data.slice(4 * ((y + 8) * width + x), 4 * ((y + 8) * width + x) + 3)].join();
        }))""")
    others = [(row, pair) for row in range(3) for pair in range(4) if colours[row][pair] != colours[0][0]]
    assert others == [(1, 3)]
    on_map(step_map, "mousemove")
    assert texts(step_map, "#map .tip") == [WRONG]
    assert step_map.get_log("browser") == []


def test_a_clicked_cell_of_the_map_is_shown_in_the_table(step_map: Any) -> None:
    on_map(step_map, "mousedown", "mouseup")
    assert texts(step_map, "#count") == ["2 of 24 values in model.layers.1.mlp"]
    assert names(step_map) == ["Functional.linear.1.forward.input.0", "Functional.linear.1.forward.output.0"]


def test_keys_go_through_the_map_and_show_a_cell_in_the_table(step_map: Any) -> None:
    canvas = step_map.find_element("css selector", "#map canvas")
    canvas.send_keys("\ue015", "\ue010")  # down, to the end
    assert texts(step_map, "#map [role=status]") == [WRONG]
    canvas.send_keys("\ue007")
    assert texts(step_map, "#count") == ["2 of 24 values in model.layers.1.mlp"]


def test_paper_has_what_is_wrong_and_the_plot_in_black_on_white(look: Callable[..., Any]) -> None:
    browser = look([call(0), call(1, "fail", cause="culprit", error=0.5), *(call(place) for place in range(2, 200))])
    set_system_theme(browser, "dark")
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert names(browser) == ["Functional.linear.1.forward.output.0"]
        assert texts(browser, "#scroller td.soft") == ["1 of 400 rows: what is right and what follows is left out"]
        colours = "const { backgroundColor, color } = getComputedStyle(document.body); return [backgroundColor, color]"
        assert browser.execute_script(colours) == ["rgb(255, 255, 255)", "rgb(0, 0, 0)"]
        assert browser.execute_script("return document.querySelector('#plot canvas').clientWidth") > 300
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
        browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert len(names(browser)) > 1


def test_a_limit_of_its_own_is_drawn_at_its_value(look: Callable[..., Any]) -> None:
    own = call(1, "fail", error=0.5)
    row = replace(own.rows[-1], metrics={**own.rows[-1].metrics, "limit": 0.125})
    browser = look([call(0), replace(own, rows=(own.rows[0], row))])
    assert browser.execute_script("return table.plot.drawn.map(({ point }) => point.limit)") == [-1, 0.125]
    assert "limit" in texts(browser, ".legend li")


def test_one_dump_has_no_map(look: Callable[..., Any]) -> None:
    browser = look([call(0)])
    assert browser.execute_script("return byId('views').hidden")
