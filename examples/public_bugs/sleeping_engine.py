"""huggingface/trl#5312: an engine that was put to sleep wakes up with the weights of before the step."""

import torch
from simulated import record_runs

from msprobe_hooks import write_weights


def run(folder, faulty):
    engine = torch.nn.Linear(16, 16)
    trainer = torch.nn.Linear(16, 16)
    trainer.load_state_dict(engine.state_dict())
    write_weights(trainer, folder / "trainer", step=0)
    with torch.no_grad():
        trainer.weight += 0.01 * torch.randn(16, 16)
        trainer.bias += 0.01
    write_weights(trainer, folder / "trainer", step=1)
    if not faulty:
        engine.load_state_dict(trainer.state_dict())
    write_weights(engine, folder / "engine", step=1)


if __name__ == "__main__":
    record_runs(run)
