"""Fused optimizer steps; each writes its state tensors, given as ``out=(var, m, v)``, and returns them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    Number = float | Tensor
    State = tuple[Tensor, Tensor, Tensor]


def _state(out: State | None, api: str) -> State:
    if out is None or len(out) != 3:
        raise ValueError(f"{api} needs its state as out=(var, m, v)")
    var, m, v = out
    return var, m, v


def _written(state: State, new: State) -> State:
    with torch.no_grad():
        for tensor, value in zip(state, new, strict=True):
            tensor.copy_(value)
    return state


def npu_apply_adam(
    beta1_power: Number, beta2_power: Number, lr: Number, beta1: Number, beta2: Number, epsilon: Number,
    grad: Tensor, use_locking: bool | None = False, use_nesterov: bool | None = False,
    *, out: State | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return one step of Adam in TensorFlow's form (``ApplyAdam``), the epsilon outside the bias correction.

    ``beta1_power`` and ``beta2_power`` are the betas to the power of the step number. ``use_locking`` has no
    influence on values. Raises ValueError without ``out``.
    """
    var, m, v = state = _state(out, "npu_apply_adam")
    m_new = beta1 * m + (1 - beta1) * grad
    v_new = beta2 * v + (1 - beta2) * grad.square()
    step = lr * (1 - beta2_power) ** 0.5 / (1 - beta1_power)
    direction = beta1 * m_new + (1 - beta1) * grad if use_nesterov else m_new
    return _written(state, (var - step * direction / (epsilon + v_new.sqrt()), m_new, v_new))


def npu_apply_adam_w(
    beta1_power: Number, beta2_power: Number, lr: Number, weight_decay: Number, beta1: Number, beta2: Number,
    epsilon: Number, grad: Tensor, max_grad_norm: Tensor | None = None, amsgrad: bool | None = False,
    maximize: bool | None = False,
    *, out: State | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return one step of AdamW with decoupled weight decay (Loshchilov and Hutter, 2019).

    ``beta1_power`` and ``beta2_power`` are the betas to the power of the *previous* step number. With
    ``amsgrad``, ``max_grad_norm`` is the running maximum of v before this step (Reddi et al., 2018).
    Raises ValueError without ``out``, or with ``amsgrad`` and no ``max_grad_norm``.
    """
    var, m, v = state = _state(out, "npu_apply_adam_w")
    if maximize:
        grad = -grad
    m_new = beta1 * m + (1 - beta1) * grad
    v_new = beta2 * v + (1 - beta2) * grad.square()
    second = v_new
    if amsgrad:
        if max_grad_norm is None:
            raise ValueError("npu_apply_adam_w with amsgrad needs max_grad_norm, the running maximum of v")
        second = torch.maximum(max_grad_norm, v_new)
    denominator = (second / (1 - beta2_power * beta2)).sqrt() + epsilon
    decayed = var * (1 - lr * weight_decay)
    return _written(state, (decayed - lr * m_new / (1 - beta1_power * beta1) / denominator, m_new, v_new))
