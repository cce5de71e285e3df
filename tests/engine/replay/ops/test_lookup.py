"""Names of operations find their function; names of anything else find nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from msprobe_hooks.dump.names import parse_api_name
from pytest_msprobe.engine.replay.ops.lookup import resolve
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.results.outcomes import Skip, SkipReason


def resolved(api: str, *, own: bool = False) -> Any:
    return resolve(parse_api_name(f"{api}.0.forward"), ReferenceRegistry(), own=own)


@pytest.mark.parametrize(
    ("api", "function"),
    [
        ("Functional.relu", F.relu),
        ("Functional.conv2d", F.conv2d),
        ("Functional.max_pool2d", F.max_pool2d),
        ("Functional.hardswish", F.hardswish),
        ("Functional.leaky_relu_", F.leaky_relu_),
        ("Functional.upsample", F.upsample),
        ("Torch.add", torch.add),
        ("Torch.linalg.norm", torch.linalg.norm),
        ("Torch.fft.fft", torch.fft.fft),
        ("Torch.fft.fftfreq", torch.fft.fftfreq),
        ("Torch.special.expit", torch.special.expit),
        ("Torch.zeros", torch.zeros),
        ("Torch.einsum", torch.einsum),
        ("Tensor.add_", torch.Tensor.add_),
        ("Tensor.__getitem__", torch.Tensor.__getitem__),
        ("Tensor.__rsub__", torch.Tensor.__rsub__),
        ("Tensor.__lt__", torch.Tensor.__lt__),
        ("Tensor.new_zeros", torch.Tensor.new_zeros),
        ("Tensor.unflatten", torch.Tensor.unflatten),
        ("Aten.add", torch.ops.aten.add),
        ("Aten.add.Tensor", torch.ops.aten.add.Tensor),
        ("Aten.native_layer_norm.default", torch.ops.aten.native_layer_norm.default),
        ("Aten.__and__.Tensor", torch.ops.aten.__and__.Tensor),
        ("VF.lstm", torch._VF.lstm),
        ("Torch.sparse.mm", torch.sparse.mm),
        ("Tensor.to_sparse_csr", torch.Tensor.to_sparse_csr),
        ("torch.ops.quantized.add", torch.ops.quantized.add),
        ("torch.ops.aten.add.Tensor", torch.ops.aten.add.Tensor),
    ],
)
def test_an_operation_is_found(api: str, function: Any) -> None:
    assert resolved(api) == function


@pytest.mark.parametrize(
    ("api", "function"),
    [
        # Also a function of torch itself: that is what a name without namespace means.
        ("Torch.norm", torch.norm),
        ("Torch.vector_norm", torch.linalg.vector_norm),
        ("Torch.rfft", torch.fft.rfft),
        ("Torch.entr", torch.special.entr),
    ],
)
def test_the_shortened_names_of_26_are_found(api: str, function: Any) -> None:
    assert resolved(api) is function


@pytest.mark.parametrize("name", ["T", "mT", "H", "real", "shape"])
def test_properties_are_read(name: str) -> None:
    x = torch.arange(6.0).view(2, 3)
    found, wanted = resolved(f"Tensor.{name}")(x), getattr(x, name)
    assert torch.equal(found, wanted) if isinstance(wanted, torch.Tensor) else found == wanted


@pytest.mark.parametrize(
    ("api", "reason"),
    [
        ("Distributed.all_reduce", SkipReason.COLLECTIVE),
        ("NPU.npu_unheard_of", SkipReason.NO_REFERENCE),
        ("Torch.no_such_function", SkipReason.UNKNOWN_API),
        ("Aten.add.NoSuchOverload", SkipReason.UNKNOWN_API),
        ("Mint.add", SkipReason.UNKNOWN_API),
        ("torch.ops.nobodys.nms", SkipReason.UNKNOWN_LIBRARY),
        ("torchvision.nms", SkipReason.UNKNOWN_LIBRARY),
        ("Tensor.numpy", SkipReason.NOT_AN_OPERATION),
        ("Inductor.graph0_forward.cpp_fused_relu_0", SkipReason.COMPILED_KERNEL),
        ("Tensor.backward", SkipReason.NOT_AN_OPERATION),
    ],
)
def test_what_cannot_be_run_is_a_skip_with_its_reason(api: str, reason: SkipReason) -> None:
    with pytest.raises(Skip, match=api.replace(".", r"\.")) as caught:
        resolved(api)
    assert caught.value.reason is reason


@pytest.mark.parametrize(
    ("api", "operator"),
    [
        ("npu_no_such", "npu.npu_no_such"),
        ("_npu_reshape_and_cache", "atb._npu_reshape_and_cache"),
        ("atb.npu_ring_mla", "atb.npu_ring_mla"),
    ],
)
def test_a_missing_function_of_the_npu_is_named(api: str, operator: str) -> None:
    with pytest.raises(Skip, match=rf"torch\.ops\.{operator}$"):
        resolved(f"NPU.{api}", own=True)


HOSTILE = """
    Torch.load Torch.save Torch.hub.load Torch.jit.load Torch.package.PackageImporter Torch.serialization.load
    Torch.ops.load_library Torch.classes.load_library Torch.utils.cpp_extension.load Torch.os.system Torch.sys.exit
    Torch.__init__ Torch.__loader__ Torch.__builtins__ Torch.linalg.__init__ Torch.fft.torch.load Torch.Tensor.add
    Torch.from_file Torch._from_blob Torch.frombuffer Torch._print Torch.manual_seed Torch.set_num_threads
    Torch.set_default_dtype Torch.compile Torch.cuda.set_device Torch.random.seed Torch._C._VariableFunctions.add
    Torch._C._jit_set_profiling_mode Torch.use_deterministic_algorithms Torch.multiprocessing.Process
    Torch.futures.Future
    Functional.importlib.import_module Functional.warnings.warn Functional.torch.load Functional.handle_torch_function
    Functional.boolean_dispatch Functional.Callable Functional.__builtins__ Functional.has_torch_function
    Tensor.__class__ Tensor.__init__ Tensor.__new__ Tensor.__dict__ Tensor.__setattr__ Tensor.__getattribute__
    Tensor.__reduce_ex__ Tensor.__reduce__ Tensor.__setstate__ Tensor.__subclasshook__ Tensor.__torch_function__
    Tensor._make_subclass Tensor.as_subclass Tensor.register_hook Tensor.share_memory_ Tensor.grad_fn Tensor.data
    Tensor.__deepcopy__ Tensor.__delattr__ Tensor._fix_weakref Tensor.storage Tensor.data_ptr Tensor.__dlpack__
    Aten.from_file Aten.from_file.default Aten.from_file.out Aten.save Aten._print Aten.warn Aten.name Aten._dir
    Aten.__class__ Aten.__getattr__ Aten.__name__ Aten.add.__class__ Aten.add.op Aten.add._dir Aten.add.overloads
    Aten.manual_seed Aten.seed Aten.set_grad_enabled Aten._cufft_set_plan_cache_max_size
    Torch.numpy.full Torch.cmath.polar Torch.math.polar Torch.cuda.nvtx.range Torch.profiler.itt.range
    torch.ops.aten.from_file torch.ops.load_library.x torch.ops.profiler._record_function_enter
    torch.ops._c10d_functional.all_reduce torch.load torch.ops.aten torch.ops.__class__.__init__
    VF.from_file VF._from_blob VF.__class__ VF.__init__ VF.frombuffer VF.load Builtins.eval Python.exec
""".split()


@pytest.mark.parametrize("api", HOSTILE)
def test_a_dump_cannot_reach_files_processes_or_settings(api: str) -> None:
    with pytest.raises(Skip):
        resolved(api)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("Functional", "celu_ conv_tbc elu_ grid_sample hardsigmoid hardtanh_ mish pdist sigmoid tanh unfold"),
        (
            "Tensor",
            "__abs__ __iadd__ __matmul__ addbmm_ chalf erfinv_ index_put_ masked_scatter_ scatter_ sigmoid_ view",
        ),
        ("Torch", "addbmm bilinear cholesky_solve embedding fmod logcumsumexp native_norm orgqr rnn_relu stft svd"),
        ("Aten", "_softmax add_ convolution embedding_bag index_put_ layer_norm max_pool2d_with_indices slice tril_"),
    ],
)
def test_what_recordings_wrap_is_found(kind: str, names: str) -> None:
    assert all(callable(resolved(f"{kind}.{name}")) for name in names.split())


def test_a_given_function_stands_for_the_name() -> None:
    name = parse_api_name("Torch.no_such_operation.0.forward")
    assert resolve(name, ReferenceRegistry(), function=torch.abs) is torch.abs


def test_a_given_function_is_an_npu_apis_own_implementation_and_no_golden_definition() -> None:
    registry = ReferenceRegistry()
    registry.add("NPU.npu_own", torch.neg)
    name = parse_api_name("NPU.npu_own.0.forward")
    assert resolve(name, registry, own=True, function=torch.abs) is torch.abs
    assert resolve(name, registry, function=torch.abs) is torch.neg
    with pytest.raises(Skip, match="no golden definition"):
        resolve(parse_api_name("NPU.mine.0.forward"), registry, function=torch.abs)


# Torch keeps what it once found of a library: made anew for a test, it would have operators of both.
@pytest.fixture(scope="module")
def library() -> Iterator[torch.library.Library]:
    """A library of operators: one on tensors, one that reads a file."""
    library = torch.library.Library("msprobe_tests", "FRAGMENT")
    library.define("double(Tensor x) -> Tensor")
    library.define("read(str name, Tensor x) -> Tensor")
    library.impl("double", lambda x: x * 2, "CompositeImplicitAutograd")
    library.impl("read", lambda name, x: x, "CompositeImplicitAutograd")
    yield library
    library._destroy()


def test_operators_of_a_loaded_library_are_found(library: torch.library.Library) -> None:
    for name in ("torch.ops.msprobe_tests.double", "torch.ops.msprobe_tests.double.default"):
        assert resolved(name)(torch.ones(2)).tolist() == [2.0, 2.0]


def test_operators_that_take_text_are_not(library: torch.library.Library) -> None:
    with pytest.raises(Skip) as caught:
        resolved("torch.ops.msprobe_tests.read")
    assert caught.value.reason is SkipReason.NOT_AN_OPERATION


def test_a_golden_definition_does_not_take_the_place_of_a_librarys_own_operator(library: torch.library.Library) -> None:
    registry, name = ReferenceRegistry(), parse_api_name("torch.ops.msprobe_tests.double.0.forward")
    registry.add("torch.ops.msprobe_tests.double", torch.add)
    assert resolve(name, registry) is torch.add
    assert resolve(name, registry, own=True) is torch.ops.msprobe_tests.double


def test_a_skip_says_how_to_make_an_operator_known() -> None:
    with pytest.raises(Skip, match=r"conftest\.py.*pytest_msprobe_register_references.*torch\.ops\.nobodys\.nms"):
        resolved("torch.ops.nobodys.nms")
