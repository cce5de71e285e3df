"""Extension points of the hook library, in copies of it: without any extension, and with one more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import msprobe_hooks
from msprobe_hooks.installed_extensions import exports, extensions

LIBRARY = Path(msprobe_hooks.__file__).parent

REFUSED = {
    "from msprobe_hooks import watch": "ImportError: cannot import name 'watch'",
    "msprobe_hooks.watch": "has no attribute 'watch', and no installed extension exports it",
    "from msprobe_hooks.mindspore import PrecisionDebugger": "ImportError: cannot import name 'PrecisionDebugger'",
    "open_session(settings('d', level='L2', list=['Torch.mm.0.forward']), None, 'pytorch')": "level is 'L2'; not sup",
    "open_session(settings('d', task='nan_check'), None, 'pytorch')": "task is 'nan_check'; not supported by any",
    "open_session(settings('d', level='aten', golden_path='g'), None, 'pytorch')": "golden_path is PosixPath('g'); not",
    "open_session(settings('d'), None, 'mindspore')": "framework is 'mindspore'; allowed: pytorch",
    "msprobe_hooks.PrecisionDebugger(task='grad_probe')": "task is 'grad_probe'; allowed: statistics",
    "msprobe_hooks.PrecisionDebugger('config.json')": "load is {'path': 'dump', 'modules': ['fc']}; not supported by",
    "open_dump(Path('0/statistic.csv'))": "DumpError: 0/statistic.csv: a kernel's file, which no installed extension",
}

IMPORTS = """
import sys
from pathlib import Path
import msprobe_hooks
from msprobe_hooks.dump.reader import open_dump
from msprobe_hooks.record import open_session
from msprobe_hooks.recording.config import settings
"""

ONE_MORE = '''
"""An extension of its own."""
EXPORTS = {"double": "doubling"}


def open_dump(path):
    return "a sheet" if path.suffix == ".sheet" else None
'''


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the library, but none of its extensions."""
    folder = tmp_path_factory.mktemp("core")
    left_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(LIBRARY, folder / "msprobe_hooks", ignore=left_out)
    for extension in extensions():
        shutil.rmtree(folder / "msprobe_hooks/extensions" / extension)
    (folder / "config.json").write_text('{"load": {"path": "dump", "modules": ["fc"]}}')
    return folder


def run(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program on the library of a folder."""
    return subprocess.run(
        [sys.executable, "-c", IMPORTS + program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_public_names_are_listed_and_can_be_imported() -> None:
    assert {"record", *exports("EXPORTS")} <= {*msprobe_hooks.__all__} <= {*dir(msprobe_hooks)}
    for name in msprobe_hooks.__all__:
        assert getattr(msprobe_hooks, name) is not None


def test_importing_the_package_loads_no_framework_and_no_module_of_an_extension() -> None:
    program = """
names = [name.split(".") for name in sys.modules if name.startswith("msprobe_hooks.extensions.")]
below = {name[3] for name in names if len(name) > 3}
print(sorted(below | {"torch", "numpy", "mindspore"} & sys.modules.keys()))
"""
    assert run(LIBRARY.parent, program).stdout == "[]\n"


def test_the_core_alone_records_calls_of_torch(core: Path, tmp_path: Path) -> None:
    program = f"""
import torch
with msprobe_hooks.record({str(tmp_path / "dump")!r}):
    torch.mm(torch.ones(2, 2), torch.ones(2, 2))
print(*open_dump(next(Path({str(tmp_path / "dump")!r}).rglob("dump.json"))).records)
"""
    done = run(core, program)
    assert done.stdout == "Torch.mm.0.forward\n", done.stderr


def test_the_core_alone_refuses_what_extensions_do(core: Path) -> None:
    program = f"""
for text in {[*REFUSED]!r}:
    try:
        exec(text)
    except Exception as error:
        print(f"{{type(error).__name__}}: {{error}}")
    else:
        print("nothing was raised")
"""
    done = run(core, program)
    lines = done.stdout.splitlines()
    assert len(lines) == len(REFUSED), done.stdout + done.stderr
    for line, expected in zip(lines, REFUSED.values(), strict=True):
        assert expected in line


def test_a_folder_is_an_extension(core: Path) -> None:
    folder = core / "msprobe_hooks/extensions/mine"
    folder.mkdir()
    (folder / "__init__.py").write_text(ONE_MORE)
    (folder / "doubling.py").write_text("def double(number):\n    return 2 * number\n")
    done = run(core, "print(msprobe_hooks.double(2), open_dump(Path('a.sheet')), 'double' in msprobe_hooks.__all__)")
    shutil.rmtree(folder)
    assert done.stdout == "4 a sheet True\n", done.stderr
