"""Answer for mindstudio-probe 1.2.2 or 26.2.0 whether it calls given results of calls wrong, by its own comparison.

    python judge_cases.py DESCRIPTOR DESCRIPTOR

Cases arrive at the first descriptor, answers leave by the second, each as its length and what ``torch.save`` writes.
The checker itself is untouched: it computes its own result on the CPU and compares by its own standards. Rebound are
what reads a call from a dump, what would run it on a device, and what would write a table.
"""

from __future__ import annotations

import io
import os
import struct
import sys
from typing import Any

# Before the peer, which replaces entries of torch.ops that a later lazy import would miss.
import torch
from torch.utils import _pytree

try:
    from msprobe.pytorch.api_accuracy_checker.run_ut import data_generate
    from msprobe.pytorch.api_accuracy_checker.run_ut import run_ut as checker
    from msprobe.pytorch.api_accuracy_checker.run_ut import run_ut_utils as tools
except ImportError:
    from msprobe.pytorch.api_accuracy_checker.acc_check import acc_check as checker
    from msprobe.pytorch.api_accuracy_checker.acc_check import acc_check_utils as tools
    from msprobe.pytorch.api_accuracy_checker.acc_check import data_generate

LENGTH = struct.Struct("<Q")
RUN, GRADIENTS = checker.exec_api, checker.run_backward


class Given:
    """One case in place of a dump and a device."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case = case
        self.of_cpu: Any = None
        self.output: Any = None

    def api_info(self, info: dict[str, Any], *_: object) -> tuple[list[Any], dict[str, Any], Any]:
        """Return arguments, and the dtype that the peer reads from a record's output."""
        return self.case["args"], self.case["kwargs"], data_generate.get_output_dtype(info)

    def run(self, parameters: Any) -> Any:
        """Run the call on the CPU the first time; the second one is the device's."""
        if self.of_cpu is None:
            self.of_cpu = RUN(parameters)
            return self.of_cpu
        self.output = _pytree.tree_unflatten(self.case["outputs"], _pytree.tree_flatten(self.of_cpu)[1])
        return self.output

    def backward(self, args: Any, gradient: Any, index: Any, output: Any) -> Any:
        """Return the CPU's gradients, or those of the device."""
        return self.case["gradients"] if output is self.output else GRADIENTS(args, gradient, index, output)


def judged(comparator: Any, case: dict[str, Any]) -> str:
    """Return "wrong", "warning", "right", or "-" where the peer skips a call."""
    given = Given(case)
    checker.get_api_info, checker.exec_api, checker.run_backward = given.api_info, given.run, given.backward
    checker.gen_args = lambda *_: case["arriving"]
    results: list[Any] = []
    comparator.record_results = results.append
    name = case["name"]
    info = {"input_kwargs": dict.fromkeys(case["kwargs"]), "output": [{"dtype": case["dtype"]}]}
    backward = {name: {"input": []}} if case["arriving"] else {}
    try:
        comparator.compare_output(name, checker.run_torch_api(name, None, backward, info))
    except Exception:
        # The peer notes whatever is raised as a skip.
        return "-"
    words = [str(word).strip().lower() for word in results[0][1:3]]
    if "error" in words:
        return "wrong"
    return "warning" if "warning" in words else "right" if "pass" in words else "-"


def main() -> None:
    arriving, leaving = (os.fdopen(int(word), mode) for word, mode in zip(sys.argv[1:], ("rb", "wb"), strict=True))
    torch.set_num_threads(1)
    checker.current_device = tools.current_device = "cpu"
    tools.autocast = lambda dtype=None: torch.autocast("cpu", dtype=dtype)
    if hasattr(tools, "get_api_register"):
        # 26.2.0 reads its list of operators anew for each call, half a second.
        register = tools.get_api_register()
        register.initialize_hook(None)
        register.initialize_hook = lambda _: None
    comparator = checker.Comparator("result.csv", "details.csv", True)
    while length := arriving.read(LENGTH.size):
        case = torch.load(io.BytesIO(arriving.read(*LENGTH.unpack(length))), weights_only=False)
        torch.manual_seed(case["seed"])
        answer = judged(comparator, case).encode()
        leaving.write(LENGTH.pack(len(answer)) + answer)
        leaving.flush()


if __name__ == "__main__":
    main()
