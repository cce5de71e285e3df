"""One step of reinforcement learning in three stages, recorded as veRL does it; ``--stale`` updates another weight."""

import argparse

import torch

from msprobe_hooks import PrecisionDebugger


class Stages:
    """Records each stage into ``<run>/step_<step>/<stage>``."""

    def __init__(self, run):
        self.run = run
        self.debugger = PrecisionDebugger(dump_path=run, level="mix")

    def record(self, stage, model, work, *, is_last=False):
        self.debugger.service.config.dump_path = f"{self.run}/step_1/{stage}"
        self.debugger.start(model)
        work()
        self.debugger.stop()
        if is_last:
            self.debugger.step()


def policy():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.SiLU(), torch.nn.Linear(16, 4))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("--stale", action="store_true")
    arguments = parser.parse_args()
    actor, reference = policy(), policy()
    states = torch.randn(6, 8)
    stages = Stages(arguments.run)

    def log_prob(model):
        return torch.log_softmax(model(states), -1)

    with torch.no_grad():
        stages.record("ref_log_prob", reference, lambda: log_prob(reference))
        stages.record("old_log_prob", actor, lambda: log_prob(actor))
    if arguments.stale:
        actor[2].weight.data *= 1.01
    stages.record("actor_update", actor, lambda: log_prob(actor).mean().backward(), is_last=True)
