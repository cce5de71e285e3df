"""Real data in a container: one tensor of a safetensors file, read by what its header says and no further."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import zstandard
from safetensors.torch import save_file

from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.errors import DumpError
from pytest_msprobe.engine.values.tensor_files import load_tensor
from pytest_msprobe.results.outcomes import Skip, SkipReason

VALUES = torch.arange(6.0).view(2, 3)


def load(folder: Path, name: str, like: torch.Tensor = VALUES, *, mapped: bool = False) -> torch.Tensor:
    element = TensorElement("torch.Tensor", str(like.dtype), tuple(like.shape), data_name=f"0.safetensors::{name}")
    return load_tensor(element, folder, mapped=mapped)


def compose(folder: Path, header: Any, elements: bytes = b"\1" * 24) -> None:
    """Write a container by hand, its header as it is given."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    (folder / "0.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + elements)


def entry(dtype: str = "F32", shape: Any = (2, 3), offsets: Any = (0, 24)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize("mapped", [True, False])
def test_what_the_library_of_the_format_wrote_is_read(tmp_path: Path, mapped: bool) -> None:
    dtypes = (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    )
    tensors = {str(dtype): VALUES.to(dtype) for dtype in dtypes}
    tensors |= {"scalar": torch.tensor(2.5), "none": torch.empty(0, 3)}
    save_file(tensors, tmp_path / "0.safetensors", {"format": "pt"})
    for name, tensor in tensors.items():
        found = load(tmp_path, name, tensor, mapped=mapped)
        assert torch.equal(found.to(torch.float64), tensor.to(torch.float64))


@pytest.mark.parametrize("mapped", [True, False])
def test_changing_a_tensor_leaves_its_file_as_it_is(tmp_path: Path, mapped: bool) -> None:
    save_file({"x": VALUES}, tmp_path / "0.safetensors")
    load(tmp_path, "x", mapped=mapped).zero_()
    assert torch.equal(load(tmp_path, "x"), VALUES)


def test_bytes_are_of_the_dtype_that_the_metadata_shows(tmp_path: Path) -> None:
    compose(
        tmp_path,
        {"__metadata__": {"x": "complex64"}, "x": entry("U8", (3, 8))},
        torch.arange(3).to(torch.complex64).view(torch.uint8).numpy().tobytes(),
    )
    expected = torch.tensor([0j, 1, 2], dtype=torch.complex64)
    assert torch.equal(load(tmp_path, "x", expected), expected)


@pytest.mark.parametrize("mapped", [True, False])
def test_a_tensor_may_begin_at_any_byte(tmp_path: Path, mapped: bool) -> None:
    header = {"a": entry("U8", (1,), (0, 1)), "x": entry("F32", (2, 3), (1, 25))}
    compose(tmp_path, header, b"\7" + VALUES.numpy().tobytes())
    assert torch.equal(load(tmp_path, "x", mapped=mapped), VALUES)


def test_a_container_that_was_written_anew_is_read_anew(tmp_path: Path) -> None:
    save_file({"x": VALUES}, tmp_path / "0.safetensors")
    load(tmp_path, "x")
    save_file({"y": torch.ones(5), "x": VALUES + 1}, tmp_path / "0.safetensors")
    assert torch.equal(load(tmp_path, "x"), VALUES + 1)


def test_a_missing_container_is_a_skip_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(Skip, match=r"0\.safetensors") as caught:
        load(tmp_path, "x")
    assert caught.value.reason is SkipReason.MISSING_TENSOR_FILE


def test_a_name_that_no_tensor_has_is_an_error_with_the_file(tmp_path: Path) -> None:
    save_file({"x": VALUES}, tmp_path / "0.safetensors")
    with pytest.raises(DumpError, match=r"0\.safetensors: holds no tensor 'y'; .*record the step again"):
        load(tmp_path, "y")


def test_a_tensor_of_another_shape_than_was_recorded_is_refused_with_its_name(tmp_path: Path) -> None:
    save_file({"x": VALUES}, tmp_path / "0.safetensors")
    with pytest.raises(DumpError, match=r"0\.safetensors::x: holds torch.float32 \(2, 3\), but .* another dump"):
        load(tmp_path, "x", VALUES.t())


@pytest.mark.parametrize("file", ["../0.safetensors", "/tmp/0.safetensors", "a/0.safetensors", "٣.safetensors"])
def test_a_containers_name_is_a_number_in_the_folder(tmp_path: Path, file: str) -> None:
    (tmp_path / "dump").mkdir()
    save_file({"x": VALUES}, tmp_path / "0.safetensors")
    element = TensorElement("torch.Tensor", "torch.float32", (2, 3), data_name=f"{file}::x")
    with pytest.raises(DumpError, match=r"leads out|tensor files end in"):
        load_tensor(element, tmp_path / "dump")


def test_a_container_that_is_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dump").mkdir()
    save_file({"x": VALUES}, tmp_path / "0.safetensors")
    (tmp_path / "dump" / "0.safetensors").symlink_to(tmp_path / "0.safetensors")
    with pytest.raises(DumpError, match="leads out"):
        load(tmp_path / "dump", "x")


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        (b"\xff{", "header cannot be read"),
        ([], "header cannot be read"),
        ({"x": entry(offsets=(0,))}, "header cannot be read"),
        ({"x": entry(shape="ab")}, "header cannot be read"),
        ({"x": entry(), "__metadata__": {"x": 3}}, "header cannot be read"),
        ({"x": entry("F7")}, "'x' has unknown dtype 'F7'"),
        ({"x": entry(offsets=(0, 20))}, r"'x' of shape \(2, 3\) cannot take bytes 0 to 20"),
        ({"x": entry(shape=(-2, -3))}, "cannot take bytes"),
        ({"x": entry(shape=[2**60] * 1000)}, "cannot take bytes"),
        ({"x": entry(shape=(0, 2**64), offsets=(0, 0))}, "cannot take bytes"),
        ({"x": entry(offsets=(4, 28))}, "takes bytes 4 to 28 of 24; the file is cut off"),
        ({"x": entry(offsets=(-24, 0))}, "takes bytes -24 to 0"),
        ({"x": entry(), "y": entry("U8", (2,), (23, 25))}, "23 to 25 of 24"),
        ({"x": entry(), "y": entry("U8", (1,), (23, 24))}, "'x' and 'y' overlap"),
        ({"x": entry(), "__metadata__": {"x": "complex64"}}, "'x' is F32, not the bytes of 'complex64'"),
        ({"x": entry("U8", (2, 3, 4)), "__metadata__": {"x": "complex64"}}, "'x' is U8, not the bytes of 'complex64'"),
        ({"x": entry("U8", (24, 1)), "__metadata__": {"x": "qint8"}}, "'x' is U8, not the bytes of 'qint8'"),
    ],
)
def test_a_header_that_no_container_has_is_refused(tmp_path: Path, header: Any, problem: str) -> None:
    compose(tmp_path, header)
    with pytest.raises(DumpError, match=rf"0\.safetensors: not a usable container.*{problem}.*record the step again"):
        load(tmp_path, "x")


def described(dtype: str = "float32", shape: Any = (2, 3), codec: str = "zstd-shuffle") -> dict[str, str]:
    """Return what metadata say of the compressed tensor x."""
    return {"x": json.dumps({"dtype": dtype, "shape": shape, "codec": codec})}


@pytest.mark.parametrize(
    ("metadata", "held", "problem"),
    [
        ({"x": "{"}, entry("U8", (24,)), "the metadata of tensor 'x' cannot be read"),
        ({"x": '{"dtype": "float32"}'}, entry("U8", (24,)), "the metadata of tensor 'x' cannot be read"),
        (described(shape=(2, "3")), entry("U8", (24,)), "the metadata of tensor 'x' cannot be read"),
        (described("qint8"), entry("U8", (24,)), "'x', U8, is not a frame of qint8"),
        (described(shape=(-2, -3)), entry("U8", (24,)), r"'x', U8, is not a frame of float32 of shape \(-2, -3\)"),
        (described(shape=(2**40, 2**40)), entry("U8", (24,)), "is not a frame of float32 of shape"),
        (described(), entry("F32"), "'x', F32, is not a frame of float32"),
        (described(), entry("U8", (4, 6)), "'x', U8, is not a frame of float32"),
    ],
)
def test_metadata_that_no_compressed_tensor_has_are_refused(
    tmp_path: Path, metadata: dict[str, str], held: dict[str, Any], problem: str
) -> None:
    compose(tmp_path, {"__metadata__": metadata, "x": held})
    with pytest.raises(DumpError, match=rf"0\.safetensors: not a usable container.*{problem}.*record the step again"):
        load(tmp_path, "x")


@pytest.mark.parametrize("shape", [(2, 3), (4, 3), (0, 3), (2**30, 2**30), (2**62,)])
def test_bytes_that_are_no_frame_of_the_tensor_are_refused_with_its_name(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    frame = zstandard.compress(bytes(8))
    compose(tmp_path, {"__metadata__": described(shape=shape), "x": entry("U8", (len(frame),), (0, len(frame)))}, frame)
    with pytest.raises(DumpError, match=r"0\.safetensors: tensor 'x' cannot be decompressed: .*record the step again"):
        load(tmp_path, "x")


def test_a_codec_of_another_version_is_reported(tmp_path: Path) -> None:
    compose(tmp_path, {"__metadata__": described(codec="lz9"), "x": entry("U8", (24,))})
    with pytest.raises(DumpError, match=r"0\.safetensors: tensor 'x' is compressed as 'lz9', .*upgrade pytest-msprobe"):
        load(tmp_path, "x")


def test_an_empty_tensor_of_sizes_that_torch_cannot_multiply_is_refused(tmp_path: Path) -> None:
    compose(tmp_path, {"x": entry(shape=(0, 2**62, 2**62), offsets=(0, 0))})
    with pytest.raises(DumpError, match=r"0\.safetensors: 'x': torch cannot hold torch.float32 \(0, \d+, \d+\)"):
        load(tmp_path, "x")


@pytest.mark.parametrize("length", range(0, 272, 17))
def test_a_container_that_was_cut_off_is_refused_wherever_it_was(tmp_path: Path, length: int) -> None:
    path = tmp_path / "0.safetensors"
    save_file({"x": torch.ones(50)}, path)
    whole = path.read_bytes()
    assert length < len(whole)
    path.write_bytes(whole[:length])
    with pytest.raises(DumpError, match=r"0\.safetensors: not a usable container"):
        load(tmp_path, "x", torch.ones(50))
