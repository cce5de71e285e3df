"""Matrices of patches that are made block by block."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_msprobe.engine.replay.ops.convolution_geometry import Axis
from pytest_msprobe.extensions.screening.im2col import Patches, patches_of
from pytest_msprobe.extensions.screening.tile_sums import TILE, blocks, products_with, walked

# Patches of these are of one block, of several, and of channels that are no part of a tile.
CHANNELS = st.sampled_from((1, 3, 96, 128, 1500))


def drawn(channels: int, kernel: int, windows: int, seed: int) -> tuple[Patches, torch.Tensor]:
    """Return the patches of two signals and all of them as one matrix."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(2, channels, windows, generator=generator)
    axis = Axis(windows, windows, kernel, 1, 1, kernel // 2)
    ((patches,),) = patches_of(values, 1, [(axis.windows(),)])
    padded = torch.nn.functional.pad(values, (kernel // 2, kernel))
    whole = padded.unfold(2, kernel, 1)[:, :, :windows]
    return patches, whole.permute(0, 2, 3, 1).reshape(2 * windows, -1)


@given(CHANNELS, st.integers(1, 5), st.integers(1, 150), st.booleans(), st.integers(0, 2**32))
def test_blocks_are_whole_tiles_of_the_matrix_and_cover_it_once(
    channels: int, kernel: int, windows: int, transposed: bool, seed: int
) -> None:
    patches, whole = drawn(channels, kernel, windows, seed)
    if transposed:
        patches, whole = patches.mT, whole.mT
    assert patches.shape == whole.shape
    covered = torch.zeros_like(whole)
    for rows, columns, block in blocks(patches, torch.float64):
        assert torch.equal(block, whole[rows, columns].double())
        assert not rows.start % TILE
        assert rows.stop == len(whole) or not rows.stop % TILE
        covered[rows, columns] += 1
    assert covered.eq(1).all()


@given(CHANNELS, st.integers(1, 3), st.integers(1, 150), st.booleans(), st.integers(0, 2**32))
def test_rows_sums_and_products_are_those_of_the_matrix(
    channels: int, kernel: int, windows: int, transposed: bool, seed: int
) -> None:
    patches, whole = drawn(channels, kernel, windows, seed)
    if transposed:
        patches, whole = patches.mT, whole.mT
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(0, len(whole), (5,), generator=generator)
    assert torch.equal(patches[rows], whole[rows])
    signs = torch.randint(0, 2, (len(whole),), generator=generator).mul_(2).sub_(1).double()
    others = torch.randn(3, whole.shape[1], generator=generator, dtype=torch.float64)
    of_patches, of_whole = (walked(each, signs, torch.float64, others) for each in (patches, whole))
    for found, expected in zip(of_patches, of_whole, strict=True):
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close(products_with(patches, others), products_with(whole, others))


def test_groups_and_ways_have_their_own_pixels_of_one_copy() -> None:
    values = torch.randn(1, 6, 5)
    axis = Axis(5, 3, 2, 2, 1, 1)
    found = patches_of(values, 3, [(each,) for each in axis.adjoint()])
    assert [len(groups) for groups in found] == [3, 3]
    assert found[0][1].pixels.data_ptr() == found[1][1].pixels.data_ptr()
    assert found[0][2].pixels.shape[1] == 2
