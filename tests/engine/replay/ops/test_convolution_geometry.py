"""Windows of convolutions and of what is linear in their results, along one dimension."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_msprobe.engine.replay.ops.convolution_geometry import Axis, Windows

SMALL = st.integers(1, 9)


def reads(windows: Windows, axis: Axis, count: int) -> set[tuple[int, int, int]]:
    """Return place, tap and element of each read of one of so many elements."""
    places, taps = range(100)[windows.places], range(axis.kernel)[windows.taps]
    return {
        (place, tap, start + offset)
        for place, start in zip(places, windows.starts, strict=False)
        for tap, offset in zip(taps, windows.offsets, strict=True)
        if 0 <= start + offset < count
    }


@given(SMALL, SMALL, SMALL, st.integers(1, 5), st.integers(1, 5), st.integers(0, 4))
def test_the_adjoint_reads_each_feature_where_its_window_read_the_image(
    image: int, features: int, kernel: int, stride: int, dilation: int, padding: int
) -> None:
    axis = Axis(image, features, kernel, stride, dilation, padding)
    adjoint = axis.adjoint()
    assert sorted(place for each in adjoint for place in range(image)[each.places]) == list(range(image))
    assert all(len(each.starts) == len(range(image)[each.places]) for each in adjoint)
    found = [read for each in adjoint for read in reads(each, axis, features)]
    expected = {(element, tap, place) for place, tap, element in reads(axis.windows(), axis, image)}
    assert len(found) == len(expected)
    assert {*found} == expected
