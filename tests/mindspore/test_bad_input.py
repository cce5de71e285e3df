"""Dumps that name what cannot be run: each record says why, and the others go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore
import pytest

from pytest_msprobe.devices.registry import DeviceRegistry
from pytest_msprobe.engine.frameworks import framework_named
from pytest_msprobe.errors import DeviceError
from tests.mindspore.calls import X, record, tensor

Write = Callable[..., Path]


def skip_reason(pytester: pytest.Pytester, write_dump: Write, records: dict[str, Any]) -> str:
    write_dump({**records, **record("Mint.abs", X)})
    result = pytester.runpytest_inprocess("--msprobe-dump=dump.json", "--msprobe-device=cpu", "-rs")
    result.assert_outcomes(passed=1, skipped=1)
    text = " ".join(result.stdout.str().split())
    return text[text.index("SKIPPED [") :]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Torch.relu", "another framework than its dump: Torch.relu in a dump of mindspore"),
        ("NPU.npu_rms_norm", "another framework than its dump: NPU.npu_rms_norm"),
        ("Mint.no_such_function", "this MindSpore has no such API: Mint.no_such_function"),
        ("Mint.linalg.no_such_function", "this MindSpore has no such API: Mint.linalg.no_such_function"),
        ("Functional.choice_with_mask", "torch has no counterpart"),
        ("Jit.forward", "a function that the program compiled: it is not in the recording: Jit.forward"),
        ("Primitive.conv.Conv2D", "Conv2D needs pad_mode, pad, stride, dilation, group, data_format"),
        ("Primitive.conv.NoSuch", "torch has no counterpart that could compute the golden result: primitive NoSuch"),
        ("MintDistributed.all_reduce", "collective communication needs its other ranks"),
        ("Mint.gelu_", "this MindSpore has no such API"),
        ("Mint.log2", "the device does not implement this API for these dtypes"),
    ],
)
def test_a_record_that_cannot_be_run_is_a_skip_that_says_why(
    pytester: pytest.Pytester, write_dump: Write, name: str, said: str
) -> None:
    assert said in skip_reason(pytester, write_dump, record(name, X))


def test_float8_that_mindspore_takes_from_no_host_is_a_skip(pytester: pytest.Pytester, write_dump: Write) -> None:
    assert "MindSpore takes no values of torch.float8_e4m3fn" in skip_reason(
        pytester, write_dump, record("Tensor.contiguous", tensor(2, dtype="Float8E4M3FN"))
    )


@pytest.mark.parametrize("dtype", ["Int4", "HiFloat8", "Quaternion"])
def test_a_dtype_that_torch_cannot_hold_is_a_skip_that_names_it(
    pytester: pytest.Pytester, write_dump: Write, dtype: str
) -> None:
    assert "this torch has no such dtype:" in skip_reason(
        pytester, write_dump, record("Mint.neg", tensor(2, dtype=dtype))
    )


def test_a_tensor_of_torch_in_a_mindspore_dump_is_a_skip(pytester: pytest.Pytester, write_dump: Write) -> None:
    foreign = tensor(2) | {"type": "torch.Tensor", "dtype": "torch.float32"}
    assert "another framework" in skip_reason(pytester, write_dump, record("Mint.neg", foreign))


def test_a_record_of_mindspore_in_a_torch_dump_is_a_skip(pytester: pytest.Pytester, write_dump: Write) -> None:
    write_dump(record("Tensor.abs", X) | record("Mint.abs", X), framework="pytorch")
    result = pytester.runpytest_inprocess("--msprobe-dump=dump.json", "--msprobe-device=cpu", "-rs")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["*of another framework than its dump: mindspore.Tensor in a dump of pytorch*"])


def test_a_dtype_that_an_old_mindspore_lacks_is_a_skip(
    pytester: pytest.Pytester, write_dump: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_msprobe.extensions.mindspore import jit_functions

    monkeypatch.delattr(mindspore, "bfloat16")
    jit_functions._bfloat16.cache_clear()
    said = skip_reason(pytester, write_dump, record("Mint.neg", tensor(2, dtype="BFloat16")))
    assert "has no dtype bfloat16" in said


def test_an_error_of_the_call_itself_is_a_failure_without_native_stacks(
    pytester: pytest.Pytester, write_dump: Write
) -> None:
    pytester.makeconftest(
        """
        from pytest_msprobe.devices.sim import SimDevice

        class Broken(SimDevice):
            name = "broken"

            def call(self, func, args, kwargs, *, record):
                return func(args[0][:, :1], args[1][:1])

        def pytest_msprobe_register_devices(registry):
            registry.add(Broken())
        """
    )
    write_dump(record("Mint.matmul", X, tensor(4, 5), output=[tensor(4, 5)]) | record("Mint.bmm", X, X))
    result = pytester.runpytest_inprocess("--msprobe-dump=dump.json", "--msprobe-device=broken", "-rs")
    assert "the API rejects the rebuilt inputs on the CPU too" in result.stdout.str()
    assert "C++ Call Stack" not in result.stdout.str()


def test_an_npu_that_is_not_there_is_one_usage_error_with_the_missing_library(
    pytester: pytest.Pytester, write_dump: Write
) -> None:
    write_dump(record("Mint.abs", X))
    result = pytester.runpytest_inprocess("--msprobe-dump=dump.json", "--msprobe-device=npu")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    errors = result.stderr.str()
    assert "device 'npu': MindSpore" in errors
    assert "cannot open shared object file" in errors
    assert "Traceback" not in errors


def test_looking_for_an_npu_warns_of_nothing_where_a_program_has_imported_mindspore(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    # How much it logs MindSpore reads when it is imported.
    monkeypatch.delenv("GLOG_v", raising=False)
    script = pytester.makepyfile(
        look="""
        import mindspore
        from pytest_msprobe.devices.registry import DeviceRegistry
        from pytest_msprobe.engine.frameworks import framework_named

        framework_named("mindspore").device(DeviceRegistry(), "auto")
        """
    )
    result = pytester.runpython(script)
    assert result.ret == 0
    assert not [line for line in result.errlines if "Ascend" in line or "CPU device" in line]


def test_mindspore_runs_on_no_cuda_device() -> None:
    with pytest.raises(DeviceError, match="npu, cpu, sim or a registered simulated device"):
        framework_named("mindspore").device(DeviceRegistry(), "cuda")


def test_a_dump_of_mindtorch_names_the_missing_package(pytester: pytest.Pytester, write_dump: Write) -> None:
    write_dump(record("Torch.abs", X), framework="mindtorch")
    result = pytester.runpytest_inprocess("--msprobe-dump=dump.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "recorded with mindtorch, but MindTorch is not installed: neither a package mindtorch" in result.stderr.str()
