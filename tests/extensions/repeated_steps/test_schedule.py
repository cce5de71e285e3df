"""Which steps are watched."""

from __future__ import annotations

from msprobe_hooks.extensions.repeated_steps.passes import Schedule


def watched(schedule: Schedule, calls: int) -> list[int]:
    return [call for call in range(calls) if schedule.is_watched(call)]


def test_a_share_is_the_same_everywhere_and_another_for_another_seed() -> None:
    one = watched(Schedule(share=0.1), 5000)
    assert 400 < len(one) < 600
    assert one == watched(Schedule(share=0.1), 5000)
    assert one != watched(Schedule(share=0.1, seed=1), 5000)


def test_steps_have_their_number_in_the_training() -> None:
    assert watched(Schedule(every=100, first_step=950), 300) == [50, 150, 250]


def test_the_first_two_steps_are_never_watched() -> None:
    assert watched(Schedule(share=1.0), 5) == [2, 3, 4]


def test_one_micro_batch_of_a_step_is_watched_each_in_its_turn() -> None:
    schedule = Schedule(every=1, micro_batches=4)
    found = watched(schedule, 400)
    assert [schedule.step_of(call) for call in found] == [*range(2, 100)]
    assert {call % 4 for call in found} == {0, 1, 2, 3}
