"""Quantised weights are compared with golden's by half a quantum: float8, int8, and int4 as three formats pack it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from msprobe_hooks import write_weights
from pytest_msprobe.extensions.checkpoint.checkpoint_files import Checkpoint, SharedParameter, parameter
from pytest_msprobe.extensions.checkpoint.quantised import quantised_difference
from pytest_msprobe.extensions.checkpoint.quantised_formats import Quantised
from pytest_msprobe.extensions.checkpoint.same_model import paired
from pytest_msprobe.extensions.model_names.model_names import model_names

NAME = "model.layers.0.self_attn.o_proj"
SHOWN = "layers.0.self_attn.o_proj.weight"
State = dict[str, Tensor]


def weight(rows: int = 32, columns: int = 64, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def float8(values: Tensor, dtype: torch.dtype, kind: str) -> State:
    """Quantise as DeepSeek (blocks, here of 128 x 128 that are cut off), by rows, or with one scale."""
    if kind == "blocks":
        blocks = [(r, c) for r in range(0, len(values), 128) for c in range(0, values.shape[1], 128)]
        scale = torch.empty(-(-len(values) // 128), -(-values.shape[1] // 128))
        codes = torch.empty(values.shape, dtype=dtype)
        for r, c in blocks:
            block = values[r : r + 128, c : c + 128]
            scale[r // 128, c // 128] = block.abs().max() / torch.finfo(dtype).max
            codes[r : r + 128, c : c + 128] = (block / scale[r // 128, c // 128]).to(dtype)
        return {f"{NAME}.weight": codes, f"{NAME}.weight_scale_inv": scale}
    largest = values.abs().amax(1, keepdim=True) if kind == "rows" else values.abs().max()
    scale = largest / torch.finfo(dtype).max
    return {f"{NAME}.weight": (values / scale).to(dtype), f"{NAME}.weight_scale": scale}


def int8(values: Tensor) -> State:
    scale = values.abs().amax(1, keepdim=True) / 127
    return {f"{NAME}.weight": (values / scale).round().to(torch.int8), f"{NAME}.weight_scale": scale}


def in_groups(values: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return codes 0 to 15, scales and zeros of groups of columns [out, groups], by the range of each."""
    groups = values.unflatten(1, (-1, size))
    low, high = groups.amin(2).clamp(max=0), groups.amax(2).clamp(min=0)
    scale = (high - low) / 15
    zero = (-low / scale).round()
    codes = ((groups / scale[..., None]).round() + zero[..., None]).clamp(0, 15)
    return codes.flatten(1).long(), scale, zero.long()


def packed(codes: Tensor, order: tuple[int, ...] = tuple(range(8))) -> Tensor:
    """Pack eight codes of the last axis in an int32, the first of ``order`` in the low bits."""
    words = torch.zeros(codes.shape[0], codes.shape[1] // 8, dtype=torch.int64)
    for place, column in enumerate(order):
        words |= codes[:, column::8] << 4 * place
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def awq(values: Tensor) -> State:
    codes, scale, zero = in_groups(values, 16)
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    return {
        f"{NAME}.qweight": packed(codes.t(), order),
        f"{NAME}.qzeros": packed(zero.t(), order),
        f"{NAME}.scales": scale.t().contiguous(),
    }


def gptq(values: Tensor, order: Tensor | None = None) -> State:
    """Quantise columns in an order of their activations, if there is one; zeros are stored less one."""
    columns = torch.arange(values.shape[1]) if order is None else order
    codes, scale, zero = in_groups(values[:, columns], 16)
    zero = zero.clamp(min=1)
    codes = ((values[:, columns] / scale.repeat_interleave(16, 1)).round() + zero.repeat_interleave(16, 1)).long()
    codes = codes.clamp(0, 15)
    back = columns.argsort()
    return {
        f"{NAME}.qweight": packed(codes[:, back]).t().contiguous(),
        f"{NAME}.qzeros": packed((zero - 1).t()),
        f"{NAME}.scales": scale.t().contiguous(),
        f"{NAME}.g_idx": (torch.arange(values.shape[1]) // 16)[back].to(torch.int32),
    }


def compressed(values: Tensor) -> State:
    """Quantise symmetrically as compressed-tensors' pack-quantized."""
    groups = values.unflatten(1, (-1, 16))
    scale = groups.abs().amax(2) / 7.5
    codes = (groups / scale[..., None]).round().clamp(-8, 7).flatten(1).long() + 8
    return {
        f"{NAME}.weight_packed": packed(codes),
        f"{NAME}.weight_scale": scale,
        f"{NAME}.weight_shape": torch.tensor(values.shape),
    }


QUANTISERS: dict[str, Callable[[Tensor], State]] = {
    "float8, blocks": lambda values: float8(values, torch.float8_e4m3fn, "blocks"),
    "float8, rows": lambda values: float8(values, torch.float8_e4m3fn, "rows"),
    "float8, one scale": lambda values: float8(values, torch.float8_e5m2, "one"),
    "int8": int8,
    "AWQ": awq,
    "GPTQ": gptq,
    "GPTQ in another order": lambda values: gptq(values, torch.randperm(values.shape[1])),
    "compressed-tensors": compressed,
}

Compare = Callable[..., tuple[dict[str, str], str]]


@pytest.fixture
def compare(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Compare:
    """Return what compares states: the reasons of failures by parameter, and the whole output."""
    monkeypatch.setenv("COLUMNS", "400")

    def compare(target: State, golden: State, what: str = "tensors", before: State | None = None) -> tuple[object, str]:
        if before is not None:
            write_weights(before, "trainer", what, step=0)
        write_weights(target, "engine", what, step=1)
        write_weights(golden, "trainer", what, step=1)
        result = pytester.runpytest_inprocess(
            "--msprobe-checkpoint=engine/step1", "--msprobe-golden=trainer/step1", "--tb=no", "-rf", "--color=no"
        )
        text = result.stdout.str()
        return dict(re.findall(r"^FAILED \S*::(\S+) - (.*)$", text, re.MULTILINE)), text

    return compare


@pytest.mark.parametrize("name", QUANTISERS)
def test_what_was_quantised_from_golden_warns(compare: Compare, name: str) -> None:
    values = weight(*((160, 200) if name == "float8, blocks" else (32, 64)))
    found, text = compare(QUANTISERS[name](values), {f"{NAME}.weight": values})
    assert found == {}
    assert "1 tensor: 1 warned" in text


@pytest.mark.parametrize("name", QUANTISERS)
def test_a_row_that_is_not_golden_s_is_named(compare: Compare, name: str) -> None:
    values = weight(*((160, 200) if name == "float8, blocks" else (32, 64)))
    other = values.clone()
    other[9] = values[8]
    found, _ = compare(QUANTISERS[name](values), {f"{NAME}.weight": other})
    assert re.search(r"\d+ of \d+ values are more than half a quantum off \(rows 9 of", found[SHOWN])


def test_weights_of_an_earlier_step_are_named_within_half_a_quantum(compare: Compare) -> None:
    before, after = weight(), weight(seed=1)
    found, _ = compare(awq(before), {f"{NAME}.weight": after}, before={f"{NAME}.weight": before})
    assert found[SHOWN].startswith("not synchronised: within half a quantum of trainer/step0; int4 of AWQ: ")


def test_digests_of_quantised_weights_say_that_they_were_not_compared(compare: Compare) -> None:
    names = [NAME, NAME.replace(".0.", ".1.")]
    golden = {f"{name}.weight": weight() for name in names}
    engine = {key.replace(NAME, name): tensor for name in names for key, tensor in awq(weight()).items()}
    found, text = compare(engine, golden, "digest")
    words = 'not compared: int4 of AWQ has no digests of values; write_weights(..., what="tensors") on both sides'
    assert list(found.values()) == [words] * 2
    assert f"2 differ alike: {words}" in text


def test_weights_that_both_sides_quantise_alike_are_compared_by_their_bits(compare: Compare) -> None:
    state = int8(weight())
    moved = {**state, f"{NAME}.weight": state[f"{NAME}.weight"].clone()}
    moved[f"{NAME}.weight"][3, 4] ^= 1
    assert compare(state, state, "digest")[0] == {}
    assert "1 of 32 rows differ (3)" in compare(moved, state, "digest")[0][SHOWN]


def test_a_trainer_in_float32_whose_weights_were_sent_in_bfloat16_is_equal(compare: Compare) -> None:
    values = weight()
    found, _ = compare(float8(values.bfloat16().float(), torch.float8_e4m3fn, "rows"), {f"{NAME}.weight": values})
    assert found == {}


def test_quantised_parts_of_fused_weights_of_two_ranks_are_put_together(compare: Compare) -> None:
    golden = {f"model.layers.0.mlp.{part}_proj.weight": weight(seed=place) for place, part in enumerate(("gate", "up"))}
    for rank in range(2):
        fused = torch.cat([values.chunk(2)[rank] for values in golden.values()])
        state = float8(fused, torch.float8_e4m3fn, "rows")
        held = {key.replace(NAME, "model.layers.0.mlp.gate_up_proj"): tensor for key, tensor in state.items()}
        write_weights(held, "engine", "tensors", step=1, rank=rank, layout={"tp": (rank, 2)})
    write_weights(golden, "trainer", "tensors")
    sides = [read(name) for name in ("engine", "trainer")]
    pairs = paired(*sides, model_names())
    assert {name: quantised_difference(*pair, ()).kind for name, pair in pairs.items()} == dict.fromkeys(
        [f"layers.0.mlp.{part}_proj.weight" for part in ("gate", "up")], "quantised"
    )


def read(name: str) -> Checkpoint:
    from pytest_msprobe.extensions.checkpoint.weights_folder import main_file, read_checkpoint

    return read_checkpoint(main_file(Path(name)))


def test_experts_in_float8_have_scales_of_their_own() -> None:
    experts = torch.stack([weight(seed=place) * 4**place for place in range(3)])
    scale = experts.abs().amax((1, 2)) / 448
    prefix = "model.layers.0.mlp.experts"
    codes = (experts / scale[:, None, None]).to(torch.float8_e4m3fn)
    target = Checkpoint("", {f"{prefix}.w2_weight": parameter(codes), f"{prefix}.w2_weight_scale": parameter(scale)})
    golden = Checkpoint(
        "", {f"{prefix}.{place}.down_proj.weight": parameter(values) for place, values in enumerate(experts)}
    )
    pairs = paired(target, golden, model_names())
    assert len(pairs) == 3
    for ours, theirs in pairs.values():
        assert ours is not None
        assert theirs is not None
        assert quantised_difference(ours, theirs, ()).kind == "quantised"


def test_scales_of_activations_are_no_failure(compare: Compare) -> None:
    state = {**int8(weight()), f"{NAME}.input_scale": torch.ones(())}
    found, text = compare(state, {f"{NAME}.weight": weight()})
    assert found == {}
    assert "2 warned" in text


def test_scales_that_do_not_fit_are_named(compare: Compare) -> None:
    state = {**int8(weight()), f"{NAME}.weight_scale": torch.ones(3)}
    found, _ = compare(state, {f"{NAME}.weight": weight()})
    assert (
        "scales of model.layers.0.self_attn.o_proj.weight have shape [3], which does not fit [32, 64]" in found[SHOWN]
    )


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"qzeros": torch.zeros(3, 4, dtype=torch.int32)}, "zeros of .* do not fit scales of shape"),
        (
            {"qzeros": torch.zeros(4, 12, dtype=torch.int32)},
            "qweight with its zeros does not hold codes of 4 or 8 bits",
        ),
        ({"g_idx": torch.full((64,), 9)}, r"scales of .* have shape \[4, 32\], its codes \[8, 32\]"),
        (
            {"qweight": torch.zeros(0, 32, dtype=torch.int32)},
            "qweight with its zeros does not hold codes of 4 or 8 bits",
        ),
    ],
)
def test_parts_of_a_packed_weight_that_do_not_fit_are_named(compare: Compare, changed: State, words: str) -> None:
    state = {**gptq(weight()), **{f"{NAME}.{part}": tensor for part, tensor in changed.items()}}
    found, _ = compare(state, {f"{NAME}.weight": weight()})
    assert re.search(words, found[SHOWN])


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@given(value=st.floats(-400, 400, width=32), scale=st.sampled_from([0.01, 1.0, 3.0]))
def test_every_float_is_within_half_a_quantum_of_its_float8(dtype: torch.dtype, value: float, scale: float) -> None:
    golden = torch.tensor([[value * scale]], dtype=torch.float32)
    target = {"w": (golden / scale).to(dtype), "w_scale": torch.tensor(scale)}
    sides = [
        Checkpoint("", {name: parameter(tensor) for name, tensor in state.items()}) for state in (target, {"w": golden})
    ]
    ours, theirs = paired(*sides, model_names())["w"]
    assert ours is not None
    assert theirs is not None
    assert quantised_difference(ours, theirs, ()).kind in ("equal", "quantised")


def test_the_kind_of_a_convolution_is_that_of_its_rows() -> None:
    def shared(name: str, values: Tensor) -> SharedParameter:
        part = parameter(values)
        return SharedParameter(name, (part,), part.shape)

    codes, scale = torch.zeros(8, 4, 3, 3, dtype=torch.int8), torch.ones(8)
    quantised = Quantised("w", "whole", shared("w", codes), shared("w_scale", scale))
    assert quantised.words == "int8 with a scale a row"
