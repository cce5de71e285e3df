"""What holds for each page that a reader looks at."""

from __future__ import annotations

from typing import Any

# What axe calls these keeps some readers out.
SERIOUS = {"serious", "critical"}

# What lies in a box that scrolls or cuts is reached there.
WIDER = """
const room = document.documentElement.clientWidth;
const isInside = (one) => {
  for (let box = one.parentElement; box !== document.body && box; box = box.parentElement)
    if (getComputedStyle(box).overflowX !== "visible") return true;
  return false;
};
return [...document.body.querySelectorAll("*")]
  .filter((one) => one.getBoundingClientRect().width && one.getBoundingClientRect().right > room + 1 && !isInside(one))
  .map((one) => `${one.tagName} ${one.id}`);
"""


def wider_than_the_window(browser: Any) -> list[str]:
    """Return the elements that reach beyond the right side of the window."""
    found: list[str] = browser.execute_script(WIDER)
    return found


def serious_violations(browser: Any) -> list[tuple[str, list[str]]]:
    """Return what axe finds serious in the page that is open, with the elements."""
    from axe_core_python.selenium import Axe

    faults = [fault for fault in Axe().run(browser)["violations"] if fault["impact"] in SERIOUS]
    return [(fault["id"], [node["html"] for node in fault["nodes"]]) for fault in faults]
