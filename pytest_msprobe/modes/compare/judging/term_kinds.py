"""Kinds of terms that operations add up, by their rows; written by `python -m tests.support.term_kinds`."""

from __future__ import annotations

#: Kind of terms -> the operations whose results add them up.
TERMS: dict[str, tuple[str, ...]] = {
    "added_product": ("addcmul",),
    "added_quotient": ("addcdiv",),
    "addend_and_product": ("addbmm", "addmm", "addmv", "baddbmm"),
    "addition": ("__add__", "__iadd__", "__isub__", "__radd__", "__rsub__", "__sub__", "add", "rsub", "sub",
        "subtract"),
    "class_loss": ("cross_entropy", "nll_loss"),
    "cosine_loss": ("cosine_embedding_loss",),
    "divergence": ("kl_div",),
    "interpolation": ("lerp",),
    "logarithm": ("log", "log10", "log2"),
    "loss": ("l1_loss",),
    "mean": ("mean", "nanmean"),
    "product": ("__matmul__", "__rmatmul__", "bmm", "conv1d", "conv2d", "conv3d", "dot", "einsum", "inner", "linear",
        "matmul", "mm", "mv", "tensordot", "vdot"),
    "squared_loss": ("huber_loss", "mse_loss", "smooth_l1_loss"),
    "sum": ("nansum", "sum"),
}  # fmt: skip

#: Kind of terms -> the operations whose gradients add them up.
GRADIENT_TERMS: dict[str, tuple[str, ...]] = {
    "addend_and_product": ("addmm", "baddbmm"),
    "batch_norm": ("batch_norm", "instance_norm"),
    "class_loss": ("cross_entropy",),
    "cosine": ("cosine_embedding_loss", "cosine_similarity"),
    "difference_loss": ("huber_loss", "mse_loss", "smooth_l1_loss"),
    "layer_norm": ("group_norm", "layer_norm"),
    "log_softmax": ("log_softmax",),
    "probability_loss": ("binary_cross_entropy_with_logits",),
    "product": ("__matmul__", "bmm", "conv1d", "conv2d", "conv3d", "linear", "matmul", "mm"),
    "rms_norm": ("rms_norm",),
    "softmax": ("softmax",),
    "unit_length": ("_weight_norm", "normalize"),
}  # fmt: skip

#: Kind of step -> the operations by which an optimizer makes it.
STEPS: dict[str, tuple[str, ...]] = {
    "adam": ("_fused_adam_", "_fused_adamw_"),
    "added_quotient": ("addcdiv",),
    "addition": ("__add__", "__iadd__", "__isub__", "__sub__", "add", "sub"),
    "quotient": ("__truediv__", "div"),
    "sign": ("sign",),
}  # fmt: skip
