"""Pictures of the pages that reports are, made from the examples: ``make pictures`` writes them into docs/images."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

from tests.support.browser.chromium import open_browser, settle

ROOT = Path(__file__).parents[3]
SCHEMES = ("light", "dark")
MOST_BYTES = 1_000_000

CHECK = "pytest -c examples/pytest.ini -q --msprobe-dump=examples/check_a_dump/dump.json"
FAULTY = f"{CHECK} -p examples.faulty_device.conftest --msprobe-device=faulty"
COMPARE = "pytest -q --msprobe-compare examples/compare_runs/target --msprobe-golden examples/compare_runs/golden"
MONITOR = "pytest -q --msprobe-monitor target/run --msprobe-golden golden/run"

# By how much a monitored training multiplies its learning rate at step 40.
FACTORS = {"golden": 1, "target": 10}

# A device of a release whose reciprocal square root errs by more than that of the release before.
ERRORS_BY_RELEASE = (0.0, 4e-7, 2e-6)
RELEASE = """
from pytest_msprobe.devices.sim import SimDevice


class Release(SimDevice):
    name = "release"

    def call(self, func, args, kwargs, *, record):
        output = super().call(func, args, kwargs, record=record)
        is_wrong = record.startswith("Torch.rsqrt") and record.endswith("forward")
        return output * (1 + {error}) if is_wrong else output


def pytest_msprobe_register_devices(registry):
    registry.add(Release())
"""

# Two checkpoints and two launch configurations that differ.
TWO_SIDES = """
import json
import numpy as np
from safetensors.numpy import save_file

draw = np.random.default_rng(0)
names = [f"model.layers.{layer}.{name}.weight" for layer in range(6) for name in ("q_proj", "k_proj", "up_proj")]
golden = {name: draw.normal(size=(32, 32)).astype(np.float32) for name in names}
target = {name: values.copy() for name, values in golden.items()}
target["model.layers.3.q_proj.weight"][:, -4:] *= 1.5
target["model.layers.4.up_proj.weight"] += 1e-4
target["model.layers.5.k_proj.weight"][0, 0] = np.nan
save_file(golden, "second.safetensors")
save_file(target, "first.safetensors")
for name, rate in (("here", 3e-4), ("there", 1e-4)):
    with open(f"{name}.yaml", "w") as file:
        file.write(json.dumps({"train": {"lr": rate, "seed": 1234, "dtype": "bfloat16"}}))
"""


@dataclass(frozen=True)
class Picture:
    """A page: the commands that write it as ``page.html``, and what is done to it before it is shown."""

    name: str
    commands: tuple[str, ...]
    fragment: str = ""
    script: str = ""
    size: tuple[int, int] = (1200, 750)


def trend_commands() -> tuple[str, ...]:
    """Return the commands that check one dump on four releases of a device and report the trend."""
    names = [f"release_{number}" for number in range(1, len(ERRORS_BY_RELEASE) + 1)]
    checks = [f"{CHECK} -p {name} --msprobe-device=release --msprobe-journal={name}.jsonl" for name in names]
    return *checks, f"pytest-msprobe report {' '.join(f'{name}.jsonl' for name in names)} --trend --html page.html"


PICTURES = (
    Picture(
        "check",
        (f"{FAULTY} --msprobe-html=page.html",),
        fragment="Functional.softmax.0.forward",
        script="document.querySelector('#details .map').scrollIntoView({block: 'center'})",
    ),
    Picture("comparison", (f"{COMPARE} --msprobe-html=page.html",)),
    Picture("graph", (f"{COMPARE} --msprobe-html=page.html",), script="views.show('graph')"),
    Picture("monitor", ("python golden/train.py", "python target/train.py", f"{MONITOR} --msprobe-html=page.html")),
    Picture("trend", trend_commands(), size=(1380, 560)),
)


def write_pictures(folder: Path) -> None:
    """Write a picture of each page in each colour scheme into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as work, open_browser() as browser:
        prepare(Path(work))
        for picture in PICTURES:
            for scheme, shown in take_pictures(browser, picture, Path(work)):
                shown.save(folder / f"{picture.name}-{scheme}.png", optimize=True)


def prepare(work: Path) -> None:
    """Copy the examples into a folder, with a device for each release."""
    shutil.copytree(ROOT / "examples", work / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    for name, factor in FACTORS.items():
        (work / name).mkdir()
        program = (work / "examples/watched_training/train.py").read_text()
        (work / name / "train.py").write_text(program.replace("*= 1000", f"*= {factor}"))
    for number, error in enumerate(ERRORS_BY_RELEASE, 1):
        (work / f"release_{number}.py").write_text(RELEASE.format(error=error))
    (work / "two_sides.py").write_text(TWO_SIDES)


def take_pictures(browser: Any, picture: Picture, work: Path) -> Iterator[tuple[str, Image.Image]]:
    """Write a page in a folder, and yield each colour scheme with what a browser shows of the page in it."""
    for command in picture.commands:
        run(command, work)
    width, height = picture.size
    size = {"width": width, "height": height, "deviceScaleFactor": 1.5, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    for scheme in SCHEMES:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        browser.get("about:blank")
        browser.get(f"{(work / 'page.html').as_uri()}#{picture.fragment}")
        browser.execute_script(picture.script)
        settle(browser)
        yield scheme, few_colours(browser.get_screenshot_as_png())
    (work / "page.html").unlink()


def few_colours(picture: bytes) -> Image.Image:
    """Return a picture in 128 colours: its commonest as they are, so that areas keep theirs, and some for the rest."""
    image = Image.open(BytesIO(picture)).convert("RGB")
    found = sorted(image.getcolors(image.width * image.height) or (), reverse=True)
    commonest = [level for _, colour in found[:64] for level in colour]
    rest = image.quantize(64, Image.Quantize.MAXCOVERAGE).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette(commonest + rest)
    return image.quantize(palette=palette, dither=Image.Dither.NONE)


def run(command: str, work: Path) -> None:
    """Run a command of this environment, whose failing items are what the page is to show."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    for name, folder in (("PATH", Path(sys.executable).parent), ("PYTHONPATH", work)):
        environment[name] = os.pathsep.join([str(folder), environment.get(name, "")])
    done = subprocess.run(command.split(), cwd=work, env=environment, capture_output=True, text=True, check=False)
    if done.returncode > 1:
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    write_pictures(Path(sys.argv[1]))
