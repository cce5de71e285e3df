"""Make this folder's tables with mindstudio-probe itself: two runs of its accuracy check, and its comparison of them.

    python make.py 1.2.2 OUT      in an environment with mindstudio-probe==1.2.2
    python make.py 26.2.0 OUT     in one with mindstudio-probe==26.2.0

The check runs with the CPU as its device, as in benchmarks/peer. The "NPU" is the CPU with noise on some results, the
"GPU" has mostly less of it. Only the device's results get noise: those in 16 bits, and those in float32 of arguments
that 16 bits cannot hold; float32 results of others are golden results of 16-bit calls.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[3] / "benchmarks" / "peer"
SCRIPTS = {"1.2.2": "run_ut_on_cpu.py", "26.2.0": "acc_check_on_cpu.py"}
CHECKS = {"1.2.2": ["-f", "pytorch", "run_ut"], "26.2.0": ["acc_check"]}
COMPARES = {"1.2.2": ["-f", "pytorch", "api_precision_compare"], "26.2.0": ["api_precision_compare"]}

# By API: noise of the NPU and of the GPU, in unit roundoffs of float16, bfloat16 and float32.
NOISE = {"matmul": (40, 5), "linear": (6, 6), "softmax": (200, 2), "mul": (3, 0), "conv2d": (0, 9), "relu": (1, 0)}


def tensor(dtype: str, *shape: int, grad: bool = False) -> dict[str, Any]:
    statistics = {"Max": 2.0, "Min": -2.0, "Mean": 0.0, "Norm": 1.0, "requires_grad": grad}
    return {"type": "torch.Tensor", "dtype": f"torch.{dtype}", "shape": list(shape), **statistics}


def dump() -> dict[str, Any]:
    data: dict[str, Any] = {}

    def add(name: str, *args: Any, output: Any, backward: bool = False, **kwargs: Any) -> None:
        data[f"{name}.forward"] = {"input_args": list(args), "input_kwargs": kwargs, "output": [output]}
        if backward:
            data[f"{name}.backward"] = {"input": [output], "output": [arg for arg in args if "requires_grad" in arg]}

    for i, dtype in enumerate(("float32", "float16", "bfloat16")):
        x, w = tensor(dtype, 33, 48, grad=True), tensor(dtype, 48, 48, grad=True)
        add(f"Torch.matmul.{i}", x, w, output=x, backward=True)
        add(f"Functional.linear.{i}", x, w, output=x, backward=True)
        add(f"Functional.softmax.{i}", x, output=x, backward=True, dim={"type": "int", "value": -1})
        add(f"Tensor.mul.{i}", x, x, output=x, backward=True)
        add(f"Functional.relu.{i}", x, output=x)
        add(f"Torch.sum.{i}", x, output=tensor(dtype))
        add(f"Torch.argmin.{i}", x, output=tensor("int64"))
        image, kernel = tensor(dtype, 33, 2, 8, 8), tensor(dtype, 2, 2, 3, 3)
        add(f"Functional.conv2d.{i}", image, kernel, output=tensor(dtype, 33, 2, 6, 6))
        add(f"Functional.layer_norm.{i}", x, {"type": "torch.Size", "value": [48]}, output=x)
    double = tensor("float64", 4, 4)
    add("Torch.exp.0", double, output=double)
    add("Torch.linalg.norm.0", tensor("float32", 33, 4), output=tensor("float32"))
    return {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None, "data": data}


def noisy(name: str, function: Any, amount: float) -> Any:
    import torch

    steps = {torch.float16: 2**-11, torch.bfloat16: 2**-8, torch.float32: 2**-24}

    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        on_device = result.dtype in steps and (result.dtype != torch.float32 or not held_by_16_bits(args))
        if on_device and amount:
            noise = torch.randn(result.shape, generator=torch.Generator().manual_seed(len(name)))
            result.data.mul_((1 + amount * steps[result.dtype] * noise).to(result.dtype))
        return result

    def held_by_16_bits(args: Any) -> bool:
        x = args[0].detach()
        return any(torch.equal(x, x.to(dtype).to(x.dtype)) for dtype in (torch.float16, torch.bfloat16))

    return call


def run_noisy(who: int, script: str, words: list[str]) -> None:
    """Run msprobe in this process with noise on some functions, found by the names that it resolves them by."""
    import runpy

    import torch

    functional = torch.nn.functional
    homes = {"matmul": torch, "linear": functional, "softmax": functional, "mul": torch.Tensor, "conv2d": functional}
    homes["relu"] = functional
    for name, amounts in NOISE.items():
        setattr(homes[name], name, noisy(name, getattr(homes[name], name), amounts[who]))
    torch.manual_seed(0)
    sys.path.insert(0, str(BENCHMARKS))
    sys.argv = [script, *words]
    runpy.run_path(script, run_name="__main__")


def make(version: str, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    source = out / "dump.json"
    source.write_text(json.dumps(dump()))
    source.chmod(0o640)
    script = str(BENCHMARKS / SCRIPTS[version])
    for who, name in enumerate(("npu", "gpu")):
        words = [*CHECKS[version], "-api_info", str(source), "-o", str(out / name)]
        subprocess.run([sys.executable, __file__, "run", str(who), script, *words], check=True)
        [details] = (out / name).glob("accuracy_checking_details_*.csv")
        details.rename(out / f"{name}.csv")
    # A row that the GPU lacks.
    rows = list(csv.reader((out / "gpu.csv").open(encoding="utf-8-sig", newline="")))
    with (out / "gpu.csv").open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file).writerows(row for row in rows if not row[0].startswith("Functional.layer_norm.2."))
    for name in ("npu", "gpu"):
        (out / f"{name}.csv").chmod(0o640)
    # msprobe takes its own spelling of file names only.
    named = {name: out / name / "accuracy_checking_details_20260101000000.csv" for name in ("npu", "gpu")}
    for name, path in named.items():
        path.write_bytes((out / f"{name}.csv").read_bytes())
        path.chmod(0o640)
    command = [sys.executable, "-m", "msprobe.msprobe", *COMPARES[version], "-npu", str(named["npu"])]
    subprocess.run([*command, "-gpu", str(named["gpu"]), "-o", str(out / "compare")], check=True)
    for kind in ("result", "details"):
        [table] = (out / "compare").glob(f"api_precision_compare_{kind}_*.csv")
        table.rename(out / f"expected_{kind}.csv")


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run_noisy(int(sys.argv[2]), sys.argv[3], sys.argv[4:])
    else:
        make(sys.argv[1], Path(sys.argv[2]))
