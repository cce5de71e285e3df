"""A real browser, and what tests of pages ask it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.requirements import require

FLAGS = """--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --window-size=1500,900"""


@contextmanager
def open_browser() -> Iterator[Any]:
    """Start Chromium and end it; where there is none, the test is skipped."""
    binary = shutil.which("chromium") or shutil.which("google-chrome")
    require(binary and shutil.which("chromedriver"), "chromium with chromedriver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in FLAGS.split():
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def texts(browser: Any, selector: str) -> list[str]:
    """Return what every element of a selector shows."""
    # In one script: rows are drawn anew as the table scrolls.
    text = "(one) => (one.innerText ?? one.textContent).trim()"
    script = f"return [...document.querySelectorAll(arguments[0])].map({text})"
    found: list[str] = browser.execute_script(script, selector)
    return found


def texts_drawn_on(browser: Any, script: str) -> set[str]:
    """Return the texts that a script, which draws anew, writes on canvases."""
    spied = """
        const drawn = new Set(), keep = CanvasRenderingContext2D.prototype.fillText, done = arguments[0];
        CanvasRenderingContext2D.prototype.fillText = function (text) { drawn.add(text); keep.apply(this, arguments); };
        SCRIPT;
        setTimeout(() => {
          CanvasRenderingContext2D.prototype.fillText = keep;
          done([...drawn].map(String));
        });
    """
    return set(browser.execute_async_script(spied.replace("SCRIPT", script)))


def click(browser: Any, script: str) -> None:
    """Click the element that a script finds."""
    browser.execute_script(f"({script}).click()")


def set_width(browser: Any, width: int, height: int = 900) -> None:
    """Give the page a width in pixels of CSS, less than a window of this browser can have too."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def set_system_theme(browser: Any, theme: str) -> None:
    """Let the system prefer ``light`` or ``dark`` colours, as pages follow it."""
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def settle(browser: Any) -> None:
    """Wait until a page has drawn what it draws after its first rows."""
    browser.execute_async_script("setTimeout(arguments[0], 300)")


def until(browser: Any, condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(browser, 300).until(lambda _: condition())
