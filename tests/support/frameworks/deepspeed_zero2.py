"""DeepSpeed with ZeRO of stage 2."""

from __future__ import annotations

from functools import partial

from tests.support.frameworks.deepspeed_zero import train as train_stage

train = partial(train_stage, stage=2)
