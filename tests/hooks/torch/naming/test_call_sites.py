from __future__ import annotations

import sys

import pytest

from msprobe_hooks.dump.names import shared_name
from msprobe_hooks.torch.call_spelling import CallSite, call_site


class Recording:
    """Notes the call site of every operator and call on it."""

    def __init__(self):
        self.seen = None

    def _note(self, *_, **__):
        self.seen = call_site(sys._getframe(1))
        return self

    __add__ = __radd__ = __iadd__ = __gt__ = __matmul__ = __pow__ = __call__ = _note


@pytest.mark.parametrize(
    ("use", "site"),
    [
        (lambda x: x + 1, CallSite(operator="+")),
        (lambda x: 1 + x, CallSite(operator="+")),
        (lambda x: x @ x, CallSite(operator="@")),
        (lambda x: x**2, CallSite(operator="**")),
        (lambda x: x > 1, CallSite(operator=">")),
        (lambda x: "yes" if x > 1 else "no", CallSite(operator=">")),
        (lambda x: x(1, 2), CallSite(positional=2)),
        (lambda x: x(1, dim=2), CallSite(positional=1, keywords=("dim",))),
        (lambda x: x(str(1, errors="a") if not x else 2), CallSite(positional=1)),
        (lambda x: x(dict(a=1)), CallSite(positional=1)),  # noqa: C408 - the nested keyword is the point
        (lambda x: x(*(1, 2)), CallSite()),
    ],
)
def test_a_call_site_knows_operator_and_argument_form(use, site):
    x = Recording()
    use(x)
    assert x.seen == site


def test_augmented_assignment_has_its_own_operator():
    x = Recording()
    x += 1
    assert x.seen == CallSite(operator="+=")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Tensor.__add__", "Tensor.__radd__"),
        ("Tensor.__add__", "Tensor.add"),
        ("Tensor.__iadd__", "Tensor.add_"),
        ("Torch.conv2d", "Functional.conv2d"),
        ("Torch.lstm", "VF.lstm"),
    ],
)
def test_spellings_of_one_operation_share_a_name(one, other):
    assert shared_name(one) == shared_name(other)


@pytest.mark.parametrize(("one", "other"), [("Tensor.__rsub__", "Tensor.__sub__"), ("Torch.relu", "Functional.relu")])
def test_different_operations_do_not(one, other):
    assert shared_name(one) != shared_name(other)
