"""Adam as BERT and mBART take it: without correction of the moments' bias, weights decayed apart."""

from __future__ import annotations

import torch
from torch import Tensor

State = tuple[Tensor, Tensor, Tensor]


def npu_bert_apply_adam(
    lr: float, beta1: float, beta2: float, epsilon: float, grad: Tensor, max_grad_norm: float,
    global_grad_norm: float, weight_decay: float, step_size: float | None = None, adam_mode: int = 0,
    *, out: State | None = None, var: Tensor | None = None, m: Tensor | None = None, v: Tensor | None = None,
) -> State:  # fmt: skip
    """Return (var, m, v) after a step, written into the given ones: ``out``, or the overload's three arguments.

    m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2, u = m / (sqrt(v) + epsilon). ``adam_mode`` 0 takes
    var = var - lr (u + weight_decay var), with g divided by ``global_grad_norm`` where that is above 1 and
    ``max_grad_norm`` is 1; a ``max_grad_norm`` up to 0 leaves g as it is. Mode 1 (mBART) takes
    var = var - step_size u - lr weight_decay var and g as it is; without ``step_size`` it is lr (CANN's ApplyAdamV2).

    Raises ValueError without the tensors that are written to, and NotImplementedError for any other
    ``max_grad_norm``: CANN's documentation clips at it, its kernel at 1.
    """
    if out is not None:
        var, m, v = out
    if var is None or m is None or v is None:
        raise ValueError("npu_bert_apply_adam needs its state as out=(var, m, v)")
    if adam_mode == 0 and max_grad_norm > 0:
        if max_grad_norm != 1:
            raise NotImplementedError(
                f"npu_bert_apply_adam has no golden definition with max_grad_norm {max_grad_norm:g}"
            )
        grad = grad / max(1.0, global_grad_norm)
    with torch.no_grad():
        m.copy_(beta1 * m + (1 - beta1) * grad)
        v.copy_(beta2 * v + (1 - beta2) * grad.square())
        update = m / (v.sqrt() + epsilon)
        if adam_mode == 0:
            var.copy_(var - lr * (update + weight_decay * var))
        else:
            var.copy_(var - (lr if step_size is None else step_size) * update - lr * weight_decay * var)
    return var, m, v
