"""An engine in bfloat16: what its trainer's other precision explains passes, and a small fault is named."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.errors import DumpError
from pytest_msprobe.extensions.inference.inference_pair import InferencePair
from pytest_msprobe.extensions.inference.inference_reports import InferenceJson
from pytest_msprobe.extensions.inference.profile import _Value
from pytest_msprobe.extensions.inference.rounding_limits import (
    Lengths,
    ProfiledValue,
    by_profile,
    gain_of,
    lengths_of,
    rounding,
)
from pytest_msprobe.extensions.model_names.model_names import model_names
from pytest_msprobe.results.result import as_json
from tests.support.dumps.served_decoders import make_engine, serve
from tests.support.dumps.trained_decoders import HEALTHY, Decoder, Fault, make_trainer, train

BFLOAT16 = torch.bfloat16


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return the recording of a trainer, which is made once."""
    made: dict[tuple[Decoder, torch.dtype, bool], Path] = {}

    def run(decoder: Decoder, dtype: torch.dtype, *, float8: bool = False) -> Path:
        key = decoder, dtype, float8
        if key not in made:
            trainer = make_trainer(decoder, dtype, float8=float8)
            made[key] = train(trainer, tmp_path_factory.mktemp("trained") / "run")
        return made[key]

    return run


def judged(target: Path, golden: Path, profile: Path | None) -> tuple[str, set[str]]:
    """Return the first culprit of a comparison, and the outcomes of all values."""
    pair = InferencePair(target, golden, model_names(()), profile=profile)
    outcomes = {pair.compare(name).outcome for name in pair.values}
    return pair.first_culprit, outcomes


@pytest.mark.parametrize("kind", ["dense", "moe", "mla", "window", "tied"])
def test_a_healthy_engine_in_bfloat16_is_within_the_profile_of_its_trainer(tmp_path, trained, kind):
    decoder = Decoder(kind, 2)
    served = serve(make_engine(decoder, BFLOAT16), tmp_path / "serve")
    both = [trained(decoder, dtype) for dtype in (torch.float32, BFLOAT16)]
    assert judged(served, both[0], both[1]) == ("", {"pass"})
    assert judged(served, both[1], both[0]) == ("", {"pass"})


def test_a_quantised_cache_is_within_a_profile_that_rounds_keys_and_values_too(tmp_path, trained):
    decoder = Decoder("kv8", 2)
    served = serve(make_engine(decoder, BFLOAT16), tmp_path / "serve")
    golden, profile = trained(decoder, torch.float32), trained(decoder, BFLOAT16, float8=True)
    assert judged(served, golden, profile) == ("", {"pass"})
    assert judged(served, golden, None)[0] == "layers.0.self_attn.o_proj.input"


@pytest.mark.parametrize(
    ("kind", "fault", "first"),
    [
        ("dense", Fault(scale=1.03), "layers.0.self_attn.o_proj.input"),
        ("dense", Fault(epsilon=1e-3), "layers.0.input_layernorm"),
        ("dense", Fault(stale=0.01, layer=1), "layers.1.input_layernorm"),
        ("window", Fault(wider=1, layer=1), "layers.1.self_attn.o_proj.input"),
        ("moe", Fault(bias=0.1, layer=1), "layers.1.mlp"),
    ],
)
def test_a_fault_that_rounding_hides_is_named_with_a_profile(tmp_path, trained, kind, fault, first):
    decoder = Decoder(kind, 2)
    served = serve(make_engine(decoder, BFLOAT16, fault), tmp_path / "serve")
    both = [trained(decoder, dtype) for dtype in (torch.float32, BFLOAT16)]
    assert judged(served, both[0], both[1])[0] == first
    assert judged(served, both[1], both[0])[0] == first


def test_an_epsilon_shows_in_the_mean_length_of_rows_where_both_runs_round_the_same_weights(tmp_path, trained):
    decoder = Decoder("dense", 2)
    served = serve(make_engine(decoder, BFLOAT16, Fault(epsilon=1e-3)), tmp_path / "serve")
    assert judged(served, trained(decoder, BFLOAT16), None)[0] == "layers.0.input_layernorm"


def test_the_run_names_the_profile_and_what_decided(compare, tmp_path, trained):
    decoder = Decoder("dense", 2)
    served = serve(make_engine(decoder, BFLOAT16, Fault(scale=1.03)), tmp_path / "serve")
    result = compare(
        served, trained(decoder, torch.float32), "--msprobe-inference-profile", str(trained(decoder, BFLOAT16))
    )
    result.stdout.fnmatch_lines(
        [
            "msprobe: limits by the errors of *",
            "first module that differs: layers.0.self_attn.o_proj.input (*; the profile has *; limit of the median *",
        ]
    )


def test_a_run_in_bfloat16_that_passes_by_the_formula_says_what_finds_smaller_faults(compare, tmp_path, trained):
    decoder = Decoder("dense", 2)
    golden, profile = trained(decoder, torch.float32), trained(decoder, BFLOAT16)
    served = serve(make_engine(decoder, BFLOAT16), tmp_path / "serve")
    line = "*limits by a formula: bfloat16 may hide small faults, which --msprobe-inference-profile finds"
    compare(served, golden).stdout.fnmatch_lines(["no module differs by more than *", line])
    result = compare(served, golden, "--msprobe-inference-profile", str(profile))
    result.stdout.no_fnmatch_line(line)


def test_a_profile_that_does_not_fit_is_refused_with_what_to_record(compare, tmp_path, trained):
    decoder = Decoder("dense", 2)
    golden, profile = trained(decoder, torch.float32), trained(decoder, BFLOAT16)
    served = serve(make_engine(decoder, BFLOAT16, HEALTHY), tmp_path / "serve")
    finer = tmp_path / "finer"
    shutil.copytree(golden, finer)

    def message(*arguments: str | Path) -> str:
        return str(compare(served, golden, *map(str, arguments)).stderr)

    option = "--msprobe-inference-profile"
    assert "record the trainer's step in bfloat16 as the profile" in message(option, finer)
    assert "does not work with --msprobe-match calls" in message(option, profile, "--msprobe-match", "calls")
    assert "no module of it is one of the golden run" not in message(option, profile)


@pytest.fixture(scope="module")
def kept(trained, tmp_path_factory) -> Callable[..., Path]:
    """Return the report of a trainer's step in another precision, which is written once."""
    made: dict[tuple[Decoder, torch.dtype], Path] = {}

    def report(decoder: Decoder, golden: torch.dtype, other: torch.dtype) -> Path:
        key = decoder, golden
        if key not in made:
            made[key] = tmp_path_factory.mktemp("kept") / "profile.json"
            runs = (trained(decoder, dtype) for dtype in (other, golden))
            pair = InferencePair(*runs, model_names(()))
            calls = [pair.compare(name) for name in pair.orders]
            made[key].write_text(json.dumps(as_json(InferenceJson(made[key], pair, calls).content())))
        return made[key]

    return report


@pytest.mark.parametrize(
    ("kind", "layers", "fault"),
    [
        ("dense", 2, Fault(epsilon=1e-3)),
        ("moe", 2, Fault(bias=0.1, layer=1)),
        pytest.param("moe", 12, HEALTHY, marks=[pytest.mark.slow, pytest.mark.nightly]),
        pytest.param("mla", 12, Fault(stale=0.01, layer=6), marks=pytest.mark.slow),
    ],
)
def test_a_kept_report_explains_what_its_recording_does(tmp_path, trained, kept, kind, layers, fault):
    decoder = Decoder(kind, layers)
    served = serve(make_engine(decoder, BFLOAT16, fault), tmp_path / "serve")
    for golden, other in ((torch.float32, BFLOAT16), (BFLOAT16, torch.float32)):
        calls = []
        for profile in (trained(decoder, other), kept(decoder, golden, other)):
            pair = InferencePair(served, trained(decoder, golden), model_names(()), profile=profile)
            calls.append([(call.outcome, call.cause, call.rows) for call in map(pair.compare, pair.orders)])
        assert calls[0] == calls[1]


def test_the_report_of_the_rerun_is_the_profile_of_the_next_run(compare, tmp_path, trained):
    decoder, file = Decoder("dense", 2), tmp_path / "profile.json"
    golden, rerun = trained(decoder, torch.float32), trained(decoder, BFLOAT16)
    assert compare(rerun, golden, "--msprobe-match", "inference", "--msprobe-json", str(file)).ret == 0
    served = serve(make_engine(decoder, BFLOAT16, Fault(scale=1.03)), tmp_path / "serve")
    result = compare(served, golden, "--msprobe-inference-profile", str(file))
    result.stdout.fnmatch_lines(
        ["*limits by the errors of profile.json", "first module that differs: layers.0.self_attn.o_proj.input (*"]
    )


def test_a_kept_report_serves_a_step_on_other_tokens(tmp_path, kept):
    decoder = Decoder("dense", 2)
    profile = kept(decoder, torch.float32, BFLOAT16)
    golden = train(make_trainer(decoder, torch.float32), tmp_path / "train", seed=7)
    for fault, first in ((HEALTHY, ""), (Fault(scale=1.03), "layers.0.self_attn.o_proj.input")):
        served = serve(make_engine(decoder, BFLOAT16, fault), tmp_path / f"serve{fault.scale}", seed=7)
        assert judged(served, golden, profile)[0] == first


def _without_format(report):
    del report["format"]


def _newer(report):
    report["format"] = "msprobe inference 2"


def _of_other_weights(report):
    report["weights_that_differ"] = ["norm.weight"]


def _of_an_engine(report):
    report["target_is_fused"] = True


def _deeper(report):
    report["values"].append(report["values"][3] | {"name": "layers.2.self_attn.q_proj"})


def _shallower(report):
    report["values"] = [one for one in report["values"] if not one["name"].startswith("layers.1.")]


def _wider(report):
    for value in report["values"]:
        value["width"] *= 2


def _of_another_precision(report):
    for value in report["values"]:
        value["golden_dtype"] = "float16"


def _of_no_dtype(report):
    report["values"][0]["target_dtype"] = "int4"


def _of_a_negative_error(report):
    report["values"][2]["scaled_error"] = -1


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_without_format, "it has no format, not 'msprobe inference 1'"),
        (_newer, "its format is 'msprobe inference 2', not 'msprobe inference 1'"),
        (_of_other_weights, "its run held other weights than the golden one, first norm.weight"),
        (_of_an_engine, "its run has fused modules, unlike the golden run"),
        (_deeper, "a profile of another model: layers.2.self_attn.q_proj is not in the golden run"),
        (_shallower, "a profile of another model: it lacks layers.1.input_layernorm.input"),
        (_wider, "a profile of another model: embed_tokens has 128 columns there and 64 in the golden run"),
        (_of_another_precision, "was measured against float16 at embed_tokens, and the golden run computes it in"),
        (_of_no_dtype, "embed_tokens has the dtype 'int4', which is none of floating point"),
        (_of_a_negative_error, "Expected `float` >= 0.0 - at `$.values[2].scaled_error`"),
    ],
)
def test_a_kept_report_that_does_not_fit_is_refused_with_what_is_wrong(tmp_path, trained, kept, engine, spoil, words):
    decoder = Decoder("dense", 2)
    report = json.loads(kept(decoder, torch.float32, BFLOAT16).read_text())
    spoil(report)
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(report))
    with pytest.raises(DumpError, match=re.escape(words)) as caught:
        InferencePair(engine, trained(decoder, torch.float32), model_names(()), profile=file)
    assert str(caught.value).startswith(str(file))


@pytest.fixture(scope="module")
def engine(tmp_path_factory) -> Path:
    return serve(make_engine(Decoder("dense", 2), BFLOAT16), tmp_path_factory.mktemp("engine") / "serve")


def test_an_engine_is_no_profile_of_its_trainer(trained, engine):
    with pytest.raises(DumpError, match="its run has fused modules, unlike the golden run"):
        InferencePair(engine, trained(Decoder("dense", 2), torch.float32), model_names(()), profile=engine)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.floats(1, 100), st.sampled_from(["bfloat16", "float32"]))
def test_a_profile_explains_its_own_errors_those_of_sqrt_2_and_in_any_scale_as_much(errors, factor, dtype):
    numbers = np.array(errors)

    def explained_by(numbers):
        value = ProfiledValue(dtype, len(numbers), float(numbers.max()), float(np.median(numbers)))
        return by_profile(value, len(numbers), dtype, 64, 0.0)

    explained = explained_by(numbers)
    assert explained.share(float(numbers.max()), float(np.median(numbers))) <= 1
    assert explained.share(float(numbers.max()), math.sqrt(2) * float(np.median(numbers))) <= 1 + 1e-12
    scaled = explained_by(factor * numbers)
    assert scaled.median <= factor * explained.median * (1 + 1e-12)
    assert scaled.median >= rounding(dtype, 64)


def test_rounded_weights_are_no_gain_and_an_epsilon_is():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(400, 256, generator=generator, dtype=torch.float64)
    weight = 1 + 0.2 * torch.randn(256, generator=generator, dtype=torch.float64)

    def norm(epsilon: float, weight: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(1, keepdim=True) + epsilon) * weight

    golden = norm(1e-6, weight)
    for epsilon, is_wrong in ((1e-6, False), (1e-3, False), (1e-2, True)):
        rows = norm(epsilon, weight.bfloat16().double()).bfloat16().double()
        errors = (rows - golden).norm(dim=1) / golden.norm(dim=1)
        lengths = lengths_of((rows.norm(dim=1) / golden.norm(dim=1)).numpy())
        assert lengths is not None
        gain = gain_of(
            lengths, None, dtype="bfloat16", width=256, columns=256, median=float(errors.median()), is_same=False
        )
        assert gain.is_wrong == is_wrong
        if is_wrong:
            # 1 / sqrt(1 + epsilon) of rows whose mean square is 1.
            assert gain.deviation == pytest.approx(-epsilon / 2, rel=0.1)


def test_few_tokens_have_no_lengths():
    assert lengths_of(np.ones(15)) is None
    assert lengths_of(np.ones(16)) == Lengths(1.0, 0.0, 16)


def test_a_value_of_a_profile_that_overflowed_explains_nothing() -> None:
    kept = {"name": "layers.0", "target_dtype": "torch.bfloat16", "tokens": 4, "scaled_error": 0.1}
    decode = msgspec.json.Decoder(_Value, strict=False).decode
    assert decode(json.dumps(kept).encode()).as_profiled() is not None
    assert decode(json.dumps(kept | {"scaled_error": "Infinity"}).encode()).as_profiled() is None
    with pytest.raises(msgspec.ValidationError, match="tokens"):
        decode(json.dumps(kept | {"tokens": "Infinity"}).encode())
