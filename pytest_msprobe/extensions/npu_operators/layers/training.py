"""Losses, their gradients, and the steps of optimizers."""

from __future__ import annotations

from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_msprobe.engine.replay.inputs.constraints import indices, values
from pytest_msprobe.engine.replay.inputs.constraints.drawn import DrawnArguments
from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.arguments import refuse

Number: TypeAlias = "float | Tensor"
State: TypeAlias = tuple[Tensor, Tensor, Tensor]


@golden("NPU.npu_softmax_cross_entropy_with_logits", OpInfo(constraint=values.distributions(1, "labels")))
def npu_softmax_cross_entropy_with_logits(self: Tensor, labels: Tensor) -> Tensor:
    """Return -sum(labels * log_softmax(self)) over the last dimension; ``labels`` are probabilities."""
    return -(labels * torch.log_softmax(self, -1)).sum(-1)


@golden("NPU.npu_cross_entropy_loss", OpInfo(constraint=indices.class_target))
def npu_cross_entropy_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    lse_square_scale_for_zloss: float = 0.0,
    return_zloss: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (loss, log_prob, zloss, lse_for_zloss) of logits (N, C) and class indices (N).

    loss is (N) with ``reduction="none"`` and (1) otherwise; log_prob is (N, C). The last two are empty.
    A negative ``ignore_index`` ignores nothing that may occur, targets being classes.
    Raises ValueError for the z-loss, which no device computes yet.
    """
    if return_zloss or lse_square_scale_for_zloss:
        raise ValueError("npu_cross_entropy_loss has no golden definition of its z-loss")
    loss = F.cross_entropy(
        input,
        target.long(),
        weight,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )
    empty = input.new_empty(0)
    log_prob = torch.log_softmax(input.detach(), -1)
    return (loss if reduction == "none" else loss.reshape(1)), log_prob, empty, empty.clone()


@golden("Aten.npu_softmax_cross_entropy_with_logits_backward", OpInfo(constraint=values.distributions(2, "labels")))
def npu_softmax_cross_entropy_with_logits_backward(grad: Tensor, self: Tensor, labels: Tensor) -> Tensor:
    """Return grad * (softmax(self) - labels) over the last dimension, one entry of ``grad`` for each row.

    It is the gradient of ``npu_softmax_cross_entropy_with_logits`` for labels that add up to 1.
    """
    return grad.unsqueeze(-1) * (torch.softmax(self, -1) - labels)


@golden("Aten.npu_binary_cross_entropy_with_logits_backward")
def npu_binary_cross_entropy_with_logits_backward(
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    weight_opt: Tensor | None,
    pos_weight_opt: Tensor | None,
    reduction: int,
) -> Tensor:
    """Return the gradient of ``binary_cross_entropy_with_logits`` for its logits.

    It is weight * ((1 - t + p t) * sigmoid(x) - p t) with p the weight of positives, over the number of logits where
    ``reduction`` is 1 (mean); 0 is none and 2 sum.
    """
    positive = target if pos_weight_opt is None else target * pos_weight_opt
    slope = (1 - target + positive) * torch.sigmoid(self) - positive
    if weight_opt is not None:
        slope = slope * weight_opt
    return grad_output * slope / (self.numel() if reduction == 1 else 1)


def _target_of_log_probabilities(drawn: DrawnArguments) -> None:
    """Map class indices into the number of classes of the logarithms before them."""
    scores = drawn.tensor(1, "log_prob")
    if scores is not None and scores.dim() == 2:
        indices.wrap(drawn.tensor(2, "target"), scores.shape[1])


@golden("Aten.npu_cross_entropy_loss_backward", OpInfo(constraint=_target_of_log_probabilities))
def npu_cross_entropy_loss_backward(
    grad_loss: Tensor, log_prob: Tensor, target: Tensor, weight: Tensor | None = None,
    grad_zloss: Tensor | None = None, lse_for_zloss: Tensor | None = None, reduction: str = "mean",
    ignore_index: int = -100, label_smoothing: float = 0.0, lse_square_scale_for_zloss: float = 0.0,
) -> Tensor:  # fmt: skip
    """Return the gradient of ``npu_cross_entropy_loss`` for its logits from its ``log_prob`` (N, C).

    The probabilities are exp(log_prob), as they are recorded. Of the loss -(1 - s) w[t] log_prob[t] - s / C sum_c w[c]
    log_prob[c], mean divides by the sum of w[t]. Without its scale the z-loss is 0 whatever its gradient is. Raises
    NotImplementedError for a z-loss, which no device computes yet.
    """
    refuse(
        "npu_cross_entropy_loss_backward",
        lse_square_scale_for_zloss=lse_square_scale_for_zloss or None,
    )
    classes = log_prob.shape[1]
    weights = log_prob.new_ones(classes) if weight is None else weight
    is_kept = target != ignore_index if ignore_index >= 0 else torch.ones_like(target, dtype=torch.bool)
    labels = target.long().masked_fill(~is_kept, 0)
    of_target = weights[labels] * is_kept
    scale = grad_loss.reshape(-1) * is_kept
    if reduction == "mean":
        scale = scale / of_target.sum()
    of_log_prob = (-label_smoothing / classes * weights).expand_as(log_prob).clone()
    of_log_prob.scatter_add_(1, labels.unsqueeze(1), (-(1 - label_smoothing) * of_target).unsqueeze(1))
    of_log_prob = of_log_prob * scale.unsqueeze(1)
    return of_log_prob - torch.exp(log_prob) * of_log_prob.sum(1, keepdim=True)


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


@golden("NPU.npu_apply_adam")
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


@golden("NPU.npu_apply_adam_w")
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


@golden("NPU.npu_bert_apply_adam")
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
