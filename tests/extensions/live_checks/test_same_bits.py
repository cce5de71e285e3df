"""What a training computes does not depend on being checked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import pytest_msprobe
from tests.support.forked import Forked


def gradients(loss: Tensor, *leaves: Tensor) -> list[Tensor]:
    loss.backward()
    return [loss, *(leaf.grad for leaf in leaves if leaf.grad is not None)]


def one_tensor_twice() -> list[Tensor]:
    x = torch.randn(4, 4, requires_grad=True)
    return gradients((x * x + torch.matmul(x, x)).sum(), x)


def in_place() -> list[Tensor]:
    x = torch.randn(4, 4, requires_grad=True)
    y = x * 2
    y.add_(x)
    y[0] = x[1] * 3
    y.t().mul_(2)
    y += 1
    F.relu(y, inplace=True)
    return gradients(y.sum(), x)


def views() -> list[Tensor]:
    x = torch.randn(4, 6, requires_grad=True)
    a, b = x.chunk(2, 1)
    c = a.transpose(0, 1).clone()
    c[1:].mul_(b.t()[1:])
    return gradients((c * c).sum() + x[:, 1].sum() + x.expand(3, 4, 6).sum(), x)


def without_gradients() -> list[Tensor]:
    x = torch.randn(4, 4, requires_grad=True)
    with torch.no_grad():
        y = x @ x
        x.mul_(0.5)
    with torch.inference_mode():
        z = (x @ x).relu()
        z.add_(1)
    return [*gradients((x @ y).sum(), x), z.clone()]


def autocast() -> list[Tensor]:
    layer = nn.Linear(8, 8)
    with torch.autocast("cpu", torch.bfloat16):
        loss = F.cross_entropy(F.softmax(layer(torch.randn(4, 8)), -1), torch.arange(4))
    return gradients(loss, *layer.parameters())


def recomputed() -> list[Tensor]:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8))
    x = torch.randn(4, 8, requires_grad=True)
    y = checkpoint(model, x, use_reentrant=False) + checkpoint(model, x, use_reentrant=True)
    return gradients(y.pow(2).sum(), x, *model.parameters())


def drawn() -> list[Tensor]:
    x = torch.randn(64, 64, requires_grad=True)
    heads = x.view(1, 4, 16, 64)
    attended = F.scaled_dot_product_attention(heads, heads, heads, dropout_p=0.1)
    return [*gradients(F.dropout(x, 0.3).sum() + attended.sum(), x), torch.rand(3)]


def layers() -> list[Tensor]:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5))
    out = model(torch.randn(2, 3, 8, 8))
    return [*gradients(nn.LSTM(5, 3, 2)(out)[0].sum(), *model.parameters()), model[1].running_mean]


def trained() -> list[Tensor]:
    layer = nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(layer.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        layer(torch.randn(3, 4)).sum().backward()
        nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()
    return list(layer.parameters())


def second_derivatives() -> list[Tensor]:
    x = torch.randn(3, requires_grad=True)
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return gradients((first**2).sum(), x)


def threads() -> list[Tensor]:
    found: dict[int, list[Tensor]] = {}

    def work(number: int) -> None:
        x = torch.full((20, 20), 0.1 * number + 0.3, requires_grad=True)
        found[number] = [*gradients((x @ x).relu().sum(), x), torch.tensor([1.5, number])]

    workers = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [tensor for number in sorted(found) for tensor in found[number]]


STEPS = [
    one_tensor_twice,
    in_place,
    views,
    without_gradients,
    autocast,
    recomputed,
    drawn,
    layers,
    trained,
    second_derivatives,
]

# At level aten only the thread that begins is seen.
CHECKED = [*((step, level) for step in STEPS for level in ("L1", "aten")), (threads, "L1")]


@pytest.mark.parametrize(("step", "level"), CHECKED, ids=lambda part: getattr(part, "__name__", part))
def test_a_step_computes_the_same_bits_and_nothing_right_is_called_wrong(
    step: Callable[[], list[Tensor]], level: str
) -> None:
    torch.manual_seed(0)
    plain = [*step(), torch.get_rng_state()]
    torch.manual_seed(0)
    with pytest_msprobe.live(per_api=None, level=level) as checks:
        checked = step()
    assert all(map(torch.equal, plain, [*checked, torch.get_rng_state()]))
    assert checks.counts["pass"] > 2
    assert checks.failed == []


# torch gives the warning of a cast once in a process.
GIVEN_ONCE = """
import warnings
import torch
import pytest_msprobe

with warnings.catch_warnings(record=True) as given, pytest_msprobe.live(per_api=None) as checks:
    warnings.simplefilter("default")
    for _ in range(3):
        warnings.warn("of the training", UserWarning, stacklevel=1)
        torch.ones(3, dtype=torch.complex64).to(torch.float32)
assert checks.counts["pass"] == 3
print([str(warning.message)[:15] for warning in given])
"""


def test_a_warning_that_is_given_once_is_given_once_and_those_of_the_reference_never(
    forked: Forked, tmp_path: Path
) -> None:
    run = forked.run(GIVEN_ONCE, tmp_path)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "['of the training', 'Casting complex']"


def test_another_thread_draws_what_it_would_draw_though_calls_that_draw_nothing_are_checked() -> None:
    torch.manual_seed(7)
    expected = [torch.rand(()).item() for _ in range(4000)]
    torch.manual_seed(7)
    drawn: list[float] = []
    begun = threading.Event()

    def draw() -> None:
        begun.wait()
        drawn.extend(torch.rand(()).item() for _ in expected)

    # It begins before the check, so that its own calls are not looked at.
    thread = threading.Thread(target=draw)
    thread.start()
    x = torch.full((4, 4), 0.5)
    with pytest_msprobe.live(per_api=None) as checks:
        begun.set()
        while thread.is_alive():
            torch.matmul(x, x)
        thread.join()
    assert checks.counts["pass"] > 0
    assert drawn == expected
