from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from msprobe_standards import METRICS, Policy, judge, standard_names

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.usefixtures("own_registry")
def test_the_examples_of_the_documentation_run() -> None:
    [measuring] = blocks("standards-reference.md", "python")
    selecting, own = blocks("standards.md", "python")
    exec(compile(measuring, "measure and judge", "exec"), {})
    exec(compile(selecting, "ask a policy", "exec"), {})
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(own, "own standard", "exec", dont_inherit=True), names)
    golden = torch.rand(200, dtype=torch.float64) + 1
    assert judge(golden.float(), golden * 1.001, standard="mostly_close").outcome == "pass"
    assert judge(golden.float(), golden * 1.1, standard="mostly_close").outcome == "fail"


def test_the_policy_of_the_documentation_loads(tmp_path: Path) -> None:
    [text] = blocks("standards.md", "yaml")
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    assert Policy.load(path).select("npu_rms_norm", output_dtype=torch.bfloat16).name == "ulp"


def test_every_standard_and_every_metric_is_documented() -> None:
    page = (DOCS / "standards-reference.md").read_text(encoding="utf-8")
    short = {"rel_err_thousandth": "_thousandth", "rel_err_ten_thousandth": "_ten_thousandth"}
    missing = [name for name in (*standard_names(), *METRICS) if f"`{short.get(name, name)}`" not in page]
    assert missing == []
