"""A whole process whose calls are listed or fixed, from the import of torch to its end."""

from __future__ import annotations

from pathlib import Path
from types import FrameType

import msgspec

from msprobe_hooks.instruments.fix.choice import Fixed
from msprobe_hooks.instruments.fix.plan import Told, claim, read_plan
from msprobe_hooks.instruments.fix.torch_mode import CountingMode, FixingMode, ListingMode
from msprobe_hooks.recording.stacks import stack_of


def attach(folder: str) -> None:
    """Follow the plan in the folder of a run. Raises OSError or JsonError where there is none."""
    plan = read_plan(Path(folder))
    process, file = claim(Path(folder))

    def tell(told: Told) -> None:
        # One system call, so that whatever ends the process leaves whole lines.
        file.write(msgspec.json.encode(told) + b"\n")

    if plan.raised is None:
        mode: CountingMode = ListingMode(
            plan.to, lambda qualified, number: tell(Told(f"{qualified}.{number}")), Fixed()
        )
    else:
        raised = frozenset(plan.raised.get(process, ()))

        def is_raised(qualified: str, number: int, frame: FrameType | None) -> bool:
            call = f"{qualified}.{number}"
            if call not in raised:
                return False
            if plan.tells_stacks:
                tell(Told(call, stack_of(frame)))
            return True

        mode = FixingMode(plan.to, is_raised, Fixed())
    for observer in mode.observers():
        observer.begin()
