from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_WRITE_WITH_LITTLE_ROOM = """
import resource
import numpy as np
from pathlib import Path
from msprobe_hooks.extensions.monitor.grad_probe.probe import ProbeSettings
from msprobe_hooks.extensions.monitor.grad_probe.probe import ProbeFiles

resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    ProbeFiles(Path("rank0"), ProbeSettings()).write(0, [], [("w", np.ones(2000, dtype=bool))])
except OSError as error:
    print(error.strerror)
"""


def test_a_sign_map_that_finds_no_room_is_an_error_and_no_file(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WRITE_WITH_LITTLE_ROOM], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "File too large\n"
    assert [path.name for path in (tmp_path / "rank0").rglob("*")] == ["step0"]
