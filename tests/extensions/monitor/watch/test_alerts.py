"""Rules that speak while a training runs, and what they find, kept in a file."""

from __future__ import annotations

import json
import logging

from msprobe_hooks import TrainerMon

EACH_VALUE = {"rules": [{"rule_name": "AnomalyNan", "args": {"threshold": 0.0}}], "dump": True}


def test_a_rule_speaks_while_the_training_runs(config, trained, caplog):
    rules = [{"rule_name": "AnomalyTurbulence", "args": {"threshold": 0.0}}, {"rule_name": "AnomalyNan"}]
    with caplog.at_level(logging.WARNING):
        trained(TrainerMon(config(mv_distribution=True, alert={"rules": rules})), 3)
    assert any(record.message.startswith("step 2: exp_avg 0.weight: norm is ") for record in caplog.records)


class TestAnomaliesThatAreKept:
    """``alert.dump``: what rules find is written while the training runs."""

    def entries(self, folder):
        return json.loads((folder / "out/anomaly_detected/rank0/anomaly.json").read_text())

    def test_the_file_is_whole_after_each_step_and_has_the_fields_of_msprobe(self, config, trained, tmp_path):
        counts = []
        monitor = TrainerMon(config(wg_distribution=True, alert=EACH_VALUE))
        trained(monitor, 3, before_step=lambda: counts.append(len(self.entries(tmp_path))))
        assert counts == [0, 8, 16]
        assert list(self.entries(tmp_path).values())[8 + 4] == {
            "rank": 0,
            "step": 1,
            "micro_step": 0,
            "pp_stage": 0,
            "vpp_stage": 0,
            "call_id": 4,
            "tag_name": "0:0.weight/rank0/post_grad",
            "message": self.entries(tmp_path)["0:0.weight/rank0/post_grad_norm_step_1_call_4"]["message"],
            "group_mates": [0],
        }

    def test_what_an_earlier_training_left_goes(self, config, trained, tmp_path):
        trained(TrainerMon(config(wg_distribution=True, alert=EACH_VALUE)), 1)
        trained(TrainerMon(config(wg_distribution=True, alert={"rules": [], "dump": True})), 1)
        assert self.entries(tmp_path) == {}

    def test_of_a_series_fifty_are_kept(self, config, trained, tmp_path):
        trained(TrainerMon(config(wg_distribution=True, format="api", alert=EACH_VALUE)), 53)
        steps = [one["step"] for one in self.entries(tmp_path).values() if one["call_id"] == 0]
        assert steps == [*range(50)]
