"""What mindstudio-probe's ``acc_check`` says of calls with planted faults; a part of ``mindspore_faults.py``.

    PEER/python benchmarks/mindspore_faults_peer.py FOLDER

It runs in an environment that has mindstudio-probe and MindSpore, and prints JSON: for each planted fault the verdicts
without and with it, ``pass``, ``error``, ``skip`` or ``not checked``, and whether the fault changed a value.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mindspore_faults import Effects, faulty
from msprobe.mindspore.api_accuracy_checker.api_accuracy_checker import ApiAccuracyChecker
from msprobe.mindspore.api_accuracy_checker.api_runner import ApiRunner

FIND = ApiRunner.get_api_instance


def verdict(checker: Any, name: str, direction: str) -> str:
    """Return what the checker says of one direction of a call."""
    if name not in checker.api_infos:
        return "not checked"
    packet = getattr(checker, f"process_{direction}")(name, checker.api_infos[name])
    if packet.result is None:
        return "skip"
    statuses = {status.status for _, _, status, _ in packet.result}
    return "error" if statuses - {"pass"} else "pass"


def planted(fault: str, direction: str, felt: Callable[[], object]) -> Any:
    """Return what the checker finds functions by, with the fault in those of MindSpore."""

    def find(kind: str, name: str, platform: str) -> Any:
        found = FIND(kind, name, platform)
        return faulty(found, fault, direction, felt) if platform == "mindspore" else found

    return staticmethod(find)


def main(folder: Path) -> None:
    """Check each call without and with its fault."""
    told = []
    for direction in ("forward", "backward"):
        dump = folder / direction / "dump.json"
        dump.chmod(0o640)
        with TemporaryDirectory() as out:
            checker = ApiAccuracyChecker(Namespace(out_path=out, result_csv_path="", save_error_data=False))
            checker.parse(str(dump))
            for name, fault in json.loads((folder / direction / "faults.json").read_text()).items():
                effects = Effects()
                ApiRunner.get_api_instance = staticmethod(FIND)
                healthy = verdict(checker, name, direction)
                ApiRunner.get_api_instance = planted(fault, direction, effects.add)
                wrong = verdict(checker, name, direction)
                told.append([name, direction, healthy, wrong, effects.count > 0])
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
