"""``pytest-msprobe msprobe anomaly-analyse``: the earliest anomalies of all ranks."""

from __future__ import annotations

import json

import pytest

from pytest_msprobe.commands.main import main


def anomaly(step=0, micro_step=0, tag="0:a.weight/rank0/post_grad", vpp=0, pp=0, call=0, rank=0):
    return {
        "rank": rank,
        "step": step,
        "micro_step": micro_step,
        "pp_stage": pp,
        "vpp_stage": vpp,
        "call_id": call,
        "tag_name": tag,
        "message": f"step {step}",
        "group_mates": [0, 1],
    }


def write(folder, rank, anomalies):
    path = folder / f"rank{rank}" / "anomaly.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(anomalies))


def analysed(folder, *arguments):
    assert main(["msprobe", "anomaly-analyse", "-d", str(folder), *arguments]) == 0
    return list(json.loads((folder / "anomaly_analyse.json").read_text()))


def test_the_order_is_step_micro_step_stage_pipeline_stage_call(tmp_path):
    actv, grad, adam = "0:a.output:0/rank0/actv", "0:a.output:0/rank0/actv_grad", "0:a.weight/rank0/exp_avg"
    write(
        tmp_path,
        0,
        {
            "later": anomaly(step=2, tag=actv),
            "micro": anomaly(step=1, micro_step=1, tag=actv),
            "moments": anomaly(step=1, tag=adam),
            "backward, second call": anomaly(step=1, tag=grad, pp=1, call=5),
            "backward, first stage": anomaly(step=1, tag=grad, pp=0),
        },
    )
    write(
        tmp_path,
        1,
        {
            "forward, last stage": anomaly(step=1, tag=actv, pp=1),
            "forward, first stage": anomaly(step=1, tag=actv, pp=0, call=9),
            "backward, first call": anomaly(step=1, tag=grad, pp=1, call=4),
            "unknown": anomaly(step=1, tag="a/b"),
        },
    )
    assert analysed(tmp_path, "-k", "20") == [
        "unknown",
        "forward, first stage",
        "forward, last stage",
        "backward, first call",
        "backward, second call",
        "backward, first stage",
        "moments",
        "micro",
        "later",
    ]


def test_only_so_many_of_the_wanted_steps_are_listed(tmp_path, capsys):
    write(tmp_path, 0, {str(step): anomaly(step=step) for step in range(9, 0, -1)})
    assert analysed(tmp_path, "-k", "2", "-s", "[5, 3, 8]") == ["3", "5"]
    assert capsys.readouterr().out.splitlines()[1:] == ["0: step 3", "1: step 5"]
    assert len(analysed(tmp_path)) == 8


def test_the_file_may_go_elsewhere(tmp_path):
    write(tmp_path / "in", 0, {"one": anomaly()})
    assert main(["msprobe", "anomaly-analyse", "-d", str(tmp_path / "in"), "-o", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "anomaly_analyse.json").exists()


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["-k", "0"], "--topk 0: expected a number of at least 1"),
        (["-s", "3"], "--step '3': expected steps in brackets"),
        (["-s", "[a]"], "--step '[a]': expected steps in brackets"),
    ],
)
def test_a_wrong_argument_is_reported(tmp_path, capsys, arguments, reported):
    write(tmp_path, 0, {})
    assert main(["msprobe", "anomaly-analyse", "-d", str(tmp_path), *arguments]) == 2
    assert reported in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", '{"a": {"rank": 0}}', "[]"])
def test_a_file_that_holds_no_anomalies_is_named(tmp_path, capsys, text):
    (tmp_path / "rank3").mkdir()
    (tmp_path / "rank3" / "anomaly.json").write_text(text)
    assert main(["msprobe", "anomaly-analyse", "-d", str(tmp_path)]) == 2
    assert "rank3/anomaly.json: not a file of anomalies" in capsys.readouterr().err


def test_a_folder_without_anomalies_is_named(tmp_path, capsys):
    assert main(["msprobe", "anomaly-analyse", "-d", str(tmp_path)]) == 2
    assert "holds no rank<n>/anomaly.json" in capsys.readouterr().err
