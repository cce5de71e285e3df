"""Float4 weights of two formats, stacks of packed experts, and scales of parts: read as their specification says."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from msprobe_hooks import write_weights
from pytest_msprobe.errors import CheckpointError
from pytest_msprobe.extensions.checkpoint.checkpoint_files import Checkpoint, Parameter, parameter
from pytest_msprobe.extensions.checkpoint.quantised import quantised_difference
from pytest_msprobe.extensions.checkpoint.same_model import paired
from pytest_msprobe.extensions.checkpoint.weights_folder import main_file, read_checkpoint
from pytest_msprobe.extensions.model_names.model_names import model_names

NAME = "layers.0.self_attn.o_proj"
EXPERTS = "layers.0.mlp.experts"
State = dict[str, Tensor]


def weight(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape or (32, 64), generator=torch.Generator().manual_seed(seed))


def e2m1(code: int) -> float:
    """Return the value of four bits by the definition: sign, two bits of exponent with bias 1, one of mantissa."""
    exponent, mantissa = code >> 1 & 3, code & 1
    size = mantissa / 2 if exponent == 0 else 2.0 ** (exponent - 1) * (1 + mantissa / 2)
    return -size if code & 8 else size


VALUES = [e2m1(code) for code in range(16)]


def nearest(value: float) -> int:
    return min(range(16), key=lambda code: abs(VALUES[code] - value))


def quantise(values: Tensor, scales: Tensor, block: int) -> Tensor:
    """Return the codes of a matrix, two in a byte, the first in the low bits."""
    codes = torch.tensor([
        [nearest(value / float(scales[row, column // block])) for column, value in enumerate(line)]
        for row, line in enumerate(values.double().tolist())
    ])  # fmt: skip
    return (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8)


def greatest(values: Tensor, block: int) -> Tensor:
    return values.double().unflatten(1, (-1, block)).abs().amax(2)


def exponents(values: Tensor) -> Tensor:
    """Return the shared exponents of blocks of 32 (OCP MX 1.0, 6.3: of the greatest value, less that of 6)."""
    return greatest(values, 32).log2().floor().int() - 2


def mxfp4(values: Tensor) -> tuple[Tensor, Tensor]:
    own = exponents(values)
    return quantise(values, 2.0 ** own.double(), 32), (own + 127).to(torch.uint8)


def nvfp4(values: Tensor) -> tuple[Tensor, Tensor, float]:
    """Return codes, scales of blocks of 16 in float8, and the factor that these were multiplied by."""
    factor = 448 * 6 / float(values.abs().max())
    scale = (greatest(values, 16) / 6 * factor).float().to(torch.float8_e4m3fn)
    return quantise(values, scale.double() / factor, 16), scale, factor


def of_compressed_tensors(values: Tensor) -> State:
    codes, scale, factor = nvfp4(values)
    scales = {f"{NAME}.weight_scale": scale, f"{NAME}.weight_global_scale": torch.tensor([factor])}
    return {f"{NAME}.weight_packed": codes, **scales}


def of_modelopt(values: Tensor) -> State:
    codes, scale, factor = nvfp4(values)
    second = torch.tensor(1 / factor)
    return {f"{NAME}.weight": codes, f"{NAME}.weight_scale": scale, f"{NAME}.weight_scale_2": second}


def of_bytes(values: Tensor) -> State:
    codes, scale = mxfp4(values)
    return {f"{NAME}.weight_packed": codes, f"{NAME}.weight_scale": scale}


def of_dtypes(values: Tensor) -> State:
    codes, scale = mxfp4(values)
    return {
        f"{NAME}.weight": codes.view(torch.float4_e2m1fn_x2),
        f"{NAME}.weight_scale": scale.view(torch.float8_e8m0fnu),
    }


FORMATS: Mapping[str, tuple[Callable[[Tensor], State], int]] = {
    "NVFP4 of compressed-tensors": (of_compressed_tensors, 16),
    "NVFP4 of ModelOpt": (of_modelopt, 16),
    "MXFP4 in bytes": (of_bytes, 32),
    "MXFP4 in dtypes of torch": (of_dtypes, 32),
}


def scales_of(state: State) -> Tensor:
    """Return the scale of each block in float64."""
    scale = state[f"{NAME}.weight_scale"]
    if scale.dtype != torch.float8_e4m3fn:
        return 2.0 ** (scale.view(torch.uint8).double() - 127)
    divisor = state.get(f"{NAME}.weight_global_scale")
    return scale.double() * (1 / divisor.double() if divisor is not None else state[f"{NAME}.weight_scale_2"].double())


def checkpoint(state: State) -> Checkpoint:
    return Checkpoint("", {name: parameter(tensor) for name, tensor in state.items()})


def pairs_of(target: State, golden: State) -> dict[str, tuple[Parameter, Parameter]]:
    pairs = paired(checkpoint(target), checkpoint(golden), model_names())
    complete = {
        name: (ours, theirs) for name, (ours, theirs) in pairs.items() if ours is not None and theirs is not None
    }
    assert len(complete) == len(pairs)
    return complete


def found(target: State, golden: State) -> dict[str, tuple[str, str]]:
    """Return kind and words of each parameter's difference."""
    differences = {name: quantised_difference(*pair, ()) for name, pair in pairs_of(target, golden).items()}
    return {name: (one.kind, one.words) for name, one in differences.items()}


@pytest.mark.parametrize("name", FORMATS)
def test_values_are_those_of_the_specification(name: str) -> None:
    make, block = FORMATS[name]
    state = make(weight())
    ours, _ = pairs_of(state, {f"{NAME}.weight": weight()})[f"{NAME}.weight"]
    packed = next(tensor for tensor in state.values() if tensor.shape == (32, 32)).view(torch.uint8).tolist()
    scales = scales_of(state).tolist()
    wanted = [
        [VALUES[line[column // 2] >> 4 * (column % 2) & 15] * scales[row][column // block] for column in range(64)]
        for row, line in enumerate(packed)
    ]
    np.testing.assert_allclose(ours.load().double().numpy(), np.array(wanted), rtol=3e-7)


@pytest.mark.parametrize("name", FORMATS)
def test_what_was_quantised_from_golden_is_within_half_a_quantum(name: str) -> None:
    values = weight()
    kind, words = found(FORMATS[name][0](values), {f"{NAME}.weight": values})[f"{NAME}.weight"]
    assert (kind, words) == ("quantised", f"within half a quantum: float4 of {name.split()[0]}")


@pytest.mark.parametrize("name", FORMATS)
def test_a_stale_block_is_named(name: str) -> None:
    make, block = FORMATS[name]
    values = weight()
    golden = values.clone()
    golden[9, 32 : 32 + block] = values[9, 32 : 32 + block].flip(0)
    kind, words = found(make(values), {f"{NAME}.weight": golden})[f"{NAME}.weight"]
    assert kind == "partly"
    place = re.search(r"\(rows 9 of 32, columns (\d+-\d+)\)$", words)
    assert place
    assert all(32 <= int(column) < 32 + block for column in re.findall(r"\d+", place[1]))


def test_a_block_with_another_scale_is_named_with_the_factor() -> None:
    values = weight()
    state = of_bytes(values)
    state[f"{NAME}.weight_scale"][9, 1] += 1
    kind, words = found(state, {f"{NAME}.weight": values})[f"{NAME}.weight"]
    assert kind == "partly"
    assert re.search(r"\(rows 9 of 32, columns 3\d-63\), about (1\.9|2|2\.1) times golden's$", words)


def test_a_wrong_global_scale_is_named_with_the_factor() -> None:
    values = weight()
    state = of_compressed_tensors(values)
    state[f"{NAME}.weight_global_scale"] /= 3
    kind, words = found(state, {f"{NAME}.weight": values})[f"{NAME}.weight"]
    assert kind == "partly"
    assert re.search(r"\(rows 0-31 of 32\), about (2\.9|3|3\.1) times golden's$", words)


def gpt_oss(values: Tensor) -> State:
    """Return a stack [experts, in, out] as gpt-oss has it: blocks along the inputs of each output."""
    packed = [mxfp4(matrix.t()) for matrix in values]
    blocks = torch.stack([codes.unflatten(1, (-1, 16)) for codes, _ in packed])
    return {
        f"{EXPERTS}.down_proj_blocks": blocks,
        f"{EXPERTS}.down_proj_scales": torch.stack([own for _, own in packed]),
    }


def test_blocks_of_gpt_oss_are_the_transposed_stack_of_transformers() -> None:
    values = weight(3, 64, 8)
    golden = {f"{EXPERTS}.down_proj": values}
    assert found(gpt_oss(values), golden) == {
        f"{EXPERTS}.down_proj": ("quantised", "within half a quantum: float4 of MXFP4")
    }
    values[1, 32:, 5] = values[1, 32:, 4]
    kind, words = found(gpt_oss(weight(3, 64, 8)), golden)[f"{EXPERTS}.down_proj"]
    assert kind == "partly"
    assert re.search(r"\(matrices 1 of 3, rows \d+-\d+, column 5\)$", words)


def test_float4_experts_that_ranks_wrote_are_compared_one_by_one(pytester: pytest.Pytester) -> None:
    values = weight(4, 8, 64)
    packed = [mxfp4(matrix) for matrix in values]
    names = (f"{EXPERTS}.w2_weight", f"{EXPERTS}.w2_weight_scale")
    for rank, own in enumerate((packed[:2], packed[2:])):
        state = {name: torch.stack(list(parts)) for name, parts in zip(names, zip(*own, strict=True), strict=True)}
        write_weights(state, "engine", "tensors", step=1, rank=rank, layout={"ep": (rank, 2)})
    golden = {f"{EXPERTS}.{place}.down_proj.weight": matrix for place, matrix in enumerate(values)}
    target = read_checkpoint(main_file(pytester.path / "engine"))
    pairs = paired(target, checkpoint(golden), model_names())
    kinds = {
        name: ours and theirs and quantised_difference(ours, theirs, ()).kind for name, (ours, theirs) in pairs.items()
    }
    assert kinds == dict.fromkeys(golden, "quantised")


def words_of(codes: Tensor, order: tuple[int, ...] = tuple(range(8))) -> Tensor:
    """Pack eight codes of the last axis in an int32, the first of ``order`` in the low bits."""
    words = torch.zeros(codes.shape[0], codes.shape[1] // 8, dtype=torch.int64)
    for place, column in enumerate(order):
        words |= codes[:, column::8] << 4 * place
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def grouped(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return codes 0 to 15 [out, in] about 8, and scales of groups of 16 columns [out, groups]."""
    groups = values.unflatten(1, (-1, 16))
    scale = groups.abs().amax(2) / 7.5
    return ((groups / scale[..., None]).round().clamp(-8, 7) + 8).flatten(1).long(), scale


def awq_of(values: Tensor) -> State:
    codes, scale = grouped(values)
    eights = torch.full_like(scale, 8).long()
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    return {"qweight": words_of(codes.t(), order), "scales": scale.t(), "qzeros": words_of(eights.t(), order)}


def gptq_of(values: Tensor) -> State:
    codes, scale = grouped(values)
    sevens = torch.full_like(scale, 7).long()
    order = torch.randperm(values.shape[1], generator=torch.Generator().manual_seed(1))
    codes, scale = grouped(values[:, order])
    return {
        "qweight": words_of(codes[:, order.argsort()]).t(), "scales": scale.t(), "qzeros": words_of(sevens.t()),
        "g_idx": (torch.arange(values.shape[1]) // 16)[order.argsort()],
    }  # fmt: skip


def compressed_of(values: Tensor) -> State:
    codes, scale = grouped(values)
    return {"weight_packed": words_of(codes), "weight_scale": scale}


def turned_of(values: Tensor) -> State:
    """Return them as vLLM has stacks of compressed-tensors."""
    codes, scale = grouped(values)
    return {"weight_packed": words_of(codes).t(), "weight_scale": scale.t()}


@pytest.mark.parametrize("make", [awq_of, gptq_of, compressed_of, turned_of])
def test_a_stack_of_packed_experts_is_read_as_its_matrices(make: Callable[[Tensor], State]) -> None:
    values = weight(3, 16, 64)
    each = [make(matrix) for matrix in values]
    state = {f"{EXPERTS}.w2_{part}": torch.stack([one[part] for one in each]) for part in each[0]}
    golden = {f"{EXPERTS}.{place}.down_proj.weight": matrix for place, matrix in enumerate(values)}
    assert {kind for kind, _ in found(state, golden).values()} == {"quantised"}
    stale = golden | {f"{EXPERTS}.1.down_proj.weight": values[1].roll(1, 0)}
    assert [name for name, (kind, _) in found(state, stale).items() if kind != "quantised"] == [
        f"{EXPERTS}.1.down_proj.weight"
    ]


def test_one_expert_of_a_stack_is_decoded_without_the_others() -> None:
    values = weight(3, 16, 64)
    each = [gptq_of(matrix) for matrix in values]
    state = {f"{EXPERTS}.w2_{part}": torch.stack([one[part] for one in each]) for part in each[0]}
    state[f"{EXPERTS}.w2_g_idx"][1] = 99
    golden = {f"{EXPERTS}.{place}.down_proj.weight": matrix for place, matrix in enumerate(values)}
    pairs = pairs_of(state, golden)
    assert quantised_difference(*pairs[f"{EXPERTS}.0.down_proj.weight"], ()).kind == "quantised"
    with pytest.raises(CheckpointError, match=r"scales of .*w2_weight have shape"):
        quantised_difference(*pairs[f"{EXPERTS}.1.down_proj.weight"], ())


def parts_of(*rows: int) -> list[Tensor]:
    return [weight(count, 32, seed=place) * 4**place for place, count in enumerate(rows)]


def in_float8(parts: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return parts one after another in float8, with a scale for each."""
    scales = [float(part.abs().max()) / 448 for part in parts]
    return torch.cat([(part / scale).to(torch.float8_e4m3fn) for part, scale in zip(parts, scales, strict=True)]), (
        torch.tensor(scales)
    )


def test_each_part_of_a_fused_weight_has_its_scale() -> None:
    attention, mlp = parts_of(32, 16, 16), parts_of(24, 24)
    target: State = {}
    for name, parts in (("self_attn.qkv_proj", attention), ("mlp.gate_up_proj", mlp)):
        target[f"layers.0.{name}.weight"], target[f"layers.0.{name}.weight_scale"] = in_float8(parts)
    names = [*(f"self_attn.{letter}_proj" for letter in "qkv"), "mlp.gate_proj", "mlp.up_proj"]
    golden = {f"layers.0.{name}.weight": part for name, part in zip(names, [*attention, *mlp], strict=True)}
    results = found(target, golden)
    assert {name: kind for name, (kind, _) in results.items()} == dict.fromkeys(golden, "quantised")
    assert results["layers.0.mlp.up_proj.weight"][1].endswith("float8_e4m3fn with a scale a part")
    swapped = target | {"layers.0.self_attn.qkv_proj.weight_scale": in_float8(attention)[1][[0, 2, 1]]}
    wrong = {name: words for name, (kind, words) in found(swapped, golden).items() if kind == "partly"}
    assert [name.split(".")[3] for name in wrong] == ["k_proj", "v_proj"]
    assert all(" times golden's" in words for words in wrong.values())


def test_each_part_of_each_expert_has_its_scale() -> None:
    experts = [parts_of(16, 16), [4 * part for part in parts_of(16, 16)]]
    both = [in_float8(parts) for parts in experts]
    target = {
        f"{EXPERTS}.w13_weight": torch.stack([codes for codes, _ in both]),
        f"{EXPERTS}.w13_weight_scale": torch.stack([scales for _, scales in both]),
    }
    golden = {
        f"{EXPERTS}.{place}.{name}_proj.weight": part
        for place, parts in enumerate(experts)
        for name, part in zip(("gate", "up"), parts, strict=True)
    }
    assert {name: kind for name, (kind, _) in found(target, golden).items()} == dict.fromkeys(golden, "quantised")


def test_blocks_of_float8_may_have_powers_of_two_as_scales() -> None:
    values = weight()
    own = greatest(values, 32).log2().floor().int() - 8
    codes = (values.double() / 2.0 ** own.double().repeat_interleave(32, 1)).clamp(-448, 448).float()
    state = {f"{NAME}.weight": codes.to(torch.float8_e4m3fn), f"{NAME}.weight_scale": (own + 127).to(torch.uint8)}
    kind, words = found(state, {f"{NAME}.weight": values})[f"{NAME}.weight"]
    assert (kind, words) == ("quantised", "within half a quantum: float8_e4m3fn with a scale for each 1 x 32")


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        (torch.zeros(32, 5, dtype=torch.uint8), r"scales of .* have shape \[32, 5\], its codes \[32, 32\]"),
        (torch.zeros(32, 0, dtype=torch.uint8), r"scales of .* have shape \[32, 0\], its codes \[32, 32\]"),
    ],
)
def test_scales_that_do_not_fit_float4_are_named(scale: Tensor, words: str) -> None:
    state = of_bytes(weight()) | {f"{NAME}.weight_scale": scale}
    with pytest.raises(CheckpointError, match=words):
        found(state, {f"{NAME}.weight": weight()})


def test_an_exponent_of_nan_makes_its_block_differ() -> None:
    state = of_bytes(weight())
    state[f"{NAME}.weight_scale"][4, 0] = 255
    kind, words = found(state, {f"{NAME}.weight": weight()})[f"{NAME}.weight"]
    assert kind == "partly"
    assert words.endswith("(rows 4 of 32, columns 0-31)")


@given(value=st.floats(-8, 8, exclude_min=True, exclude_max=True), exponent=st.integers(-20, 20))
@settings(max_examples=50)
def test_every_number_is_within_half_a_quantum_of_its_float4(value: float, exponent: int) -> None:
    codes = torch.tensor([[nearest(value), *[0] * 31]])
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8)
    golden = torch.zeros(1, 32)
    golden[0, 0] = math.ldexp(value, exponent)
    state = {f"{NAME}.weight_packed": packed, f"{NAME}.weight_scale": torch.tensor([[exponent + 127]]).to(torch.uint8)}
    assert found(state, {f"{NAME}.weight": golden})[f"{NAME}.weight"][0] in ("equal", "quantised")
