"""A device gets tensors with the conjugate and negative bits that they were recorded with; golden never does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from msprobe_hooks.dump.memory_layouts import Layout
from msprobe_standards import Policy
from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.replay.calls.laid_out_tensors import lay_out_all
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.engine.values.pytree import tensors_with_paths
from pytest_msprobe.engine.values.strides import without_bits
from tests.engine.replay.memory.strided_faults import Misreading, MisreadingGradients, WritingAround, linearly
from tests.support.dumps.dump_files import forward, tensor

TASKS = pytest.mark.parametrize("task", ["statistics", "tensor"])


def z(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.complex64)


def without_conj(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as it is read by a kernel that ignores the conjugate bit."""
    return tensor.conj() if tensor.is_conj() else tensor


def without_neg(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as it is read by a kernel that ignores the negative bit."""
    return torch._neg_view(tensor) if tensor.is_neg() else tensor


def resolved(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_conj().resolve_neg()


CONJUGATED: dict[str, Callable[[], Any]] = {
    "matmul": lambda: torch.matmul(z(6, 5), z(4, 5).mH),
    "mul": lambda: torch.mul(z(4, 5), z(4, 5).conj()),
    "exp": lambda: torch.exp(z(9).conj()),
    "sum": lambda: torch.sum(z(8, 5).conj(), 0),
    "einsum": lambda: torch.einsum("ij,kj->ik", z(3, 5), z(4, 5).conj()),
    "bmm": lambda: torch.bmm(z(2, 3, 4), z(2, 5, 4).mH),
    "cat": lambda: torch.cat([z(3, 2).conj(), z(3, 2)]),
    "add_": lambda: z(4, 5).conj().add_(z(4, 5)),
}
NEGATED: dict[str, Callable[[], Any]] = {
    "exp": lambda: torch.exp(z(9).conj().imag),
    "softmax": lambda: F.softmax(z(4, 5).conj().imag, -1),
    "sort": lambda: torch.sort(z(9).conj().imag),
    "mul_": lambda: z(4, 5).conj().imag.mul_(2.0),
    "add": lambda: torch.add(torch._neg_view(torch.arange(8)), torch.arange(8)),
}
LAZY = [*((api, program, without_conj) for api, program in CONJUGATED.items())]
LAZY += [*((api, program, without_neg) for api, program in NEGATED.items())]


@TASKS
@pytest.mark.parametrize(("api", "program", "misread"), LAZY)
def test_a_kernel_that_ignores_a_lazy_bit_is_found_and_one_that_resolves_it_passes(
    api: str, program: Any, misread: Any, task: str, recorded: Any, check: Any
) -> None:
    call = recorded(program, api, task)
    assert check(call).forward.outcome == "pass"
    # What is resolved first is not written to in its own memory.
    assert api.endswith("_") or check(call, device=Misreading(resolved)).forward.outcome == "pass"
    wrong = check(call, device=Misreading(misread)).forward
    name = "conjugate" if misread is without_conj else "negative"
    assert wrong.outcome == "fail"
    assert f"; only with the {name} bit of args." in wrong.reason


def test_a_product_with_a_lazily_conjugated_copy_of_itself_is_found(recorded: Any, check: Any) -> None:
    call = recorded(lambda: (lambda x: torch.mul(x, x.conj()))(z(4, 5)), "mul", "tensor")
    assert check(call).forward.outcome == "pass"
    wrong = check(call, device=Misreading(without_conj)).forward
    assert wrong.reason.endswith("; only with the conjugate bit of args.1, which shares memory")


def test_a_wrong_stride_is_not_blamed_on_the_bit_that_comes_with_it(recorded: Any, check: Any) -> None:
    call = recorded(lambda: torch.exp(z(6, 5).mH), "exp")

    def misread(x: torch.Tensor) -> torch.Tensor:
        return linearly(without_bits(x)).conj() if x.is_conj() else linearly(x)

    wrong = check(call, device=Misreading(misread)).forward
    assert wrong.reason.endswith("; only with stride (1, 5) of args.0")


@TASKS
def test_gradients_that_arrive_conjugated_are_given_so(task: str, recorded: Any, check: Any) -> None:
    def program() -> None:
        x = z(4, 5).requires_grad_()
        (torch.exp(x).conj() * z(4, 5)).abs().sum().backward()

    call = recorded(program, "exp", task)
    assert check(call).backward.outcome == "pass"
    assert check(call, device=MisreadingGradients(resolved)).backward.outcome == "pass"
    wrong = check(call, device=MisreadingGradients(without_conj)).backward
    assert wrong.outcome == "fail"
    assert wrong.reason.endswith("; only with the conjugate bit of grad")


def test_gradients_of_a_lazily_conjugated_argument_are_right(recorded: Any, check: Any) -> None:
    def program() -> None:
        x, y = (z(4, 5).requires_grad_() for _ in range(2))
        torch.matmul(x, y.mH).abs().sum().backward()

    result = check(recorded(program, "matmul"))
    assert (result.forward.outcome, result.backward.outcome) == ("pass", "pass")


def test_golden_has_no_lazy_bits(recorded: Any, default_policy: Policy) -> None:
    call = recorded(lambda: torch.mul(z(4, 5), z(4, 5).conj()), "mul")
    seen: dict[str, bool] = {}

    class Watched(SimDevice):
        name = "watched"

        def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
            seen.update({path: each.is_conj() for path, each in tensors_with_paths(list(args))})
            return func(*args, **kwargs)

    replay = Replay(call, ReplayConfig(Watched(), default_policy, TorchFramework()))
    golden = replay.trial.subject.golden
    object.__setattr__(replay.trial.subject, "golden", lambda *args: (_require_resolved(args), golden(*args))[1])
    assert replay.forward().outcome == "pass"
    assert seen == {"0": False, "1": True}


def _require_resolved(args: Any) -> None:
    assert not any(each.is_conj() or each.is_neg() for _, each in tensors_with_paths(list(args)))


def test_contiguous_memory_has_no_lazy_bits(recorded: Any, check: Any) -> None:
    call = recorded(lambda: torch.mul(z(4, 5), z(4, 5).conj()), "mul")
    assert check(call, device=Misreading(without_conj), memory="contiguous").forward.outcome == "pass"


def test_what_is_written_around_a_lazily_negated_argument_fails(recorded: Any, check: Any) -> None:
    call = recorded(lambda: z(4, 5).conj().imag.mul_(2.0), "mul_")
    wrong = check(call, device=WritingAround()).forward
    assert [each.path for each in wrong.outputs if each.verdict.outcome == "fail"] == ["changed.args.0.around"]


def test_values_of_a_tensor_with_lazy_bits_are_those_that_were_drawn() -> None:
    values = {"a": z(3, 4), "b": torch.randn(5)}
    layouts = {"a": Layout((1, 3), 2, is_conj=True), "b": Layout((2,), is_neg=True)}
    placed = lay_out_all(values, layouts).tensors
    assert (placed["a"].is_conj(), placed["b"].is_neg()) == (True, True)
    assert all(torch.equal(placed[path], values[path]) for path in values)
    assert torch.equal(without_bits(placed["a"]), values["a"].conj_physical())
    assert torch.equal(without_bits(placed["b"]), -values["b"])


@pytest.mark.parametrize("dtype", ["torch.bool", "torch.float8_e4m3fn", "torch.float32", "torch.int64"])
def test_bits_that_a_dtype_cannot_have_are_left_out(dtype: str, recorder: Any, check: Any) -> None:
    given = tensor(4, dtype=dtype) | {"is_conj": True, "is_neg": True}
    call = recorder.keep("Tensor.clone.0", forward(given, output=[tensor(4, dtype=dtype)]))
    assert check(call).forward.outcome in ("pass", "skip")


def test_a_file_that_has_the_bit_itself_is_read_with_it(recorded: Any, check: Any) -> None:
    # As msprobe saves a tensor that is contiguous but for its bit.
    call = recorded(lambda: torch.exp(z(9)), "exp", "tensor")
    file = next(Path(call.tensor_folder).glob("*.input.0.pt"))
    torch.save(torch.load(file).conj(), file)
    assert check(call).forward.outcome == "pass"
    wrong = check(call, device=Misreading(without_conj)).forward
    assert wrong.reason.endswith("; only with the conjugate bit of args.0")


def once_each(tensor: torch.Tensor) -> torch.Tensor:
    """Return a sparse tensor as it is read by a kernel that takes each place to be there once: the last one counts."""
    if not tensor.is_sparse or tensor.is_coalesced():
        return tensor
    indices, values = tensor._indices(), tensor._values()
    last = {tuple(place): number for number, place in enumerate(indices.t().tolist())}
    kept = torch.tensor([*last.values()])
    return torch.sparse_coo_tensor(indices[:, kept], values[kept], tensor.shape, check_invariants=False)


def sparse(*shape: int) -> torch.Tensor:
    indices = torch.stack([torch.randint(0, size, (7,)) for size in shape])
    indices[:, -1] = indices[:, 0]
    return torch.sparse_coo_tensor(indices, torch.randn(7), shape, check_invariants=False)


@TASKS
@pytest.mark.parametrize(
    ("api", "program"),
    [
        ("mm", lambda x: torch.mm(x, torch.randn(6, 3))),
        ("coalesce", lambda x: x.coalesce()),
        ("to_dense", lambda x: x.to_dense()),
        ("add", lambda x: torch.add(torch.randn(5, 6), x)),
    ],
)
def test_a_kernel_that_takes_a_sparse_tensor_for_a_coalesced_one_is_found(
    api: str, program: Any, task: str, recorded: Any, check: Any
) -> None:
    x = sparse(5, 6)
    call = recorded(lambda: program(x), api, task)
    assert check(call).forward.outcome == "pass"
    coalesced = Misreading(lambda x: x.coalesce() if x.is_sparse else x)
    assert check(call, device=coalesced).forward.outcome == "pass"
    assert check(call, device=Misreading(once_each)).forward.outcome == "fail"


@pytest.mark.parametrize("is_coalesced", [True, False])
def test_a_sparse_tensor_is_drawn_with_as_many_elements_as_were_recorded(
    is_coalesced: bool, recorded: Any, default_policy: Policy
) -> None:
    x = sparse(5, 6).coalesce() if is_coalesced else sparse(5, 6)
    count = x._nnz()
    replay = Replay(recorded(lambda: torch.neg(x), "neg"), ReplayConfig(SimDevice(), default_policy, TorchFramework()))
    (drawn,) = replay.trial.subject.arguments.args
    assert (drawn.layout, drawn.shape, drawn._nnz(), drawn.is_coalesced()) == (
        torch.sparse_coo,
        (5, 6),
        count,
        is_coalesced,
    )
    assert drawn.coalesce()._nnz() == count if is_coalesced else drawn.coalesce()._nnz() < count


@TASKS
def test_a_sparse_gradient_that_arrives_is_judged(task: str, recorded: Any, check: Any) -> None:
    def program() -> None:
        weight = torch.randn(4, 5).requires_grad_() * 1.0
        F.embedding(torch.tensor([1, 2, 2]), weight, sparse=True).sum().backward()

    assert check(recorded(program, "__mul__", task)).backward.outcome == "pass"


@pytest.mark.parametrize("rows", [0, 3])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_a_compressed_gradient_that_arrives_is_skipped(rows: int, recorded: Any, check: Any) -> None:
    def program() -> None:
        values = torch.eye(rows, rows).to_sparse_csr().requires_grad_()
        factors = torch.randn(rows, 4), torch.randn(4, rows)
        result = torch.sparse.sampled_addmm(values, *(factor.requires_grad_() for factor in factors))
        result.backward(torch.eye(rows, rows).to_sparse_csr())

    backward = check(recorded(program, "sparse", "tensor")).backward
    assert backward.outcome == "skip"
    assert backward.reason.endswith("the CPU cannot compute a golden result: gradients arrive as torch.sparse_csr")
