"""Defects of gradients' formulas: wrong sums, masks, factors and accumulators."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.corpus.fault import Launch, arrived, variant

Gradients = tuple["torch.Tensor | None", ...]


@variant("linear conv2d layer_norm", backward=True)
def bias_gradient_is_a_mean(launch: Launch) -> Gradients:
    """The bias gradient is averaged over the rows."""
    gradients, forward = arrived(launch)
    incoming = forward.incoming
    rows = incoming.numel() // incoming.shape[1 if launch.api.endswith("conv2d") else -1]
    last = max((i for i, each in enumerate(gradients) if each is not None and each.dim() == 1), default=None)
    return tuple(each / rows if i == last and each is not None else each for i, each in enumerate(gradients))


@variant("linear layer_norm", backward=True)
def bias_gradient_in_its_own_dtype(launch: Launch) -> Gradients:
    """The bias gradient is added up in 16 bits."""
    gradients, forward = arrived(launch)
    incoming = forward.incoming.flatten(0, -2)
    if incoming.dtype not in (torch.float16, torch.bfloat16):
        return gradients
    total = torch.zeros_like(incoming[0])
    for row in incoming:
        total = total + row
    last = max((i for i, each in enumerate(gradients) if each is not None and each.dim() == 1), default=None)
    return tuple(total if i == last else each for i, each in enumerate(gradients))


@variant("masked_fill", backward=True)
def gradient_passes_the_mask(launch: Launch) -> Gradients:
    """Elements that were filled pass their gradient on."""
    gradients, forward = arrived(launch)
    return (forward.incoming.clone(), *gradients[1:])


@variant("conv2d", backward=True)
def weight_gradient_of_a_convolution_flipped(launch: Launch) -> Gradients:
    """The gradient of the weights is that of the flipped ones."""
    return tuple(each.flip(-1, -2) if each is not None and i == 1 else each for i, each in enumerate(launch.run()))


@variant("max_pool2d", backward=True)
def gradients_of_shared_maxima_overwrite(launch: Launch) -> Gradients:
    """Where windows share their greatest element, one gradient counts."""
    gradients, forward = arrived(launch)
    x = forward.args[0].detach()
    names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
    given = {name: forward.argument(i, name) for i, name in enumerate(names, 1)}
    options = {name: value for name, value in given.items() if value is not None}
    _, places = F.max_pool2d(x, return_indices=True, **options)
    spread = torch.zeros_like(x).flatten(-2)
    spread.scatter_(-1, places.flatten(-2), forward.incoming.flatten(-2))
    return (spread.view_as(x), *gradients[1:])


@variant("var", backward=True)
def gradient_of_the_variance_by_n(launch: Launch) -> Gradients:
    """The gradient of the unbiased variance is divided by n."""
    gradients, forward = arrived(launch)
    n = forward.args[0].numel() // max(1, forward.incoming.numel())
    return tuple(None if each is None else each * ((n - 1) / n) for each in gradients)


@variant("mul", backward=True)
def complex_gradient_without_conjugate(launch: Launch) -> Gradients:
    """The gradient of a complex product is not conjugated."""
    gradients, forward = arrived(launch)
    first, second = forward.args[:2]
    if not isinstance(second, torch.Tensor) or not first.is_complex():
        return gradients
    return (forward.incoming * second.detach(), forward.incoming * first.detach())[: len(gradients)]


@variant("cross_entropy", backward=True)
def ignored_rows_have_a_gradient(launch: Launch) -> Gradients:
    """Rows whose label is ignored get the gradient of label 0."""
    gradients, forward = arrived(launch)
    x, labels = forward.args[0].detach(), forward.args[1]
    ignored = labels == forward.argument(4, "ignore_index", -100)
    if labels.is_floating_point() or not ignored.any() or gradients[0] is None:
        return gradients
    wrong = (x.float().softmax(1) - F.one_hot(torch.zeros_like(labels), x.shape[1])) / max(1, int((~ignored).sum()))
    return (torch.where(ignored[:, None], wrong.to(x.dtype), gradients[0]), *gradients[1:])


@variant("scaled_dot_product_attention", backward=True)
def normalizer_of_attention_in_bfloat16(launch: Launch) -> Gradients:
    """The backward pass reads the logarithm of the sums in bfloat16."""
    gradients, forward = arrived(launch)
    query, key, value = (each.detach().float() for each in forward.args[:3])
    if forward.argument(3, "attn_mask") is not None or query.shape[1] != key.shape[1]:
        return gradients
    scale = query.shape[-1] ** -0.5
    scores = query @ key.mT * scale
    if forward.argument(5, "is_causal", False):
        visible = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~visible, -torch.inf)
    weights = (scores - scores.logsumexp(-1, keepdim=True).bfloat16().float()).exp()
    incoming = forward.incoming.float()
    of_weights = incoming @ value.mT
    of_scores = weights * (of_weights - (weights * of_weights).sum(-1, keepdim=True)) * scale
    dtype = forward.args[0].dtype
    return (of_scores @ key).to(dtype), (of_scores.mT @ query).to(dtype), (weights.mT @ incoming).to(dtype)


@variant("pow", backward=True)
def gradient_of_a_power_through_logarithms(launch: Launch) -> Gradients:
    """The gradient of a power is result times exponent over base, which is NaN at zero."""
    gradients, forward = arrived(launch)
    x, exponent = forward.args[0].detach(), forward.args[1]
    if isinstance(exponent, torch.Tensor):
        return gradients
    return (forward.incoming * x.pow(exponent) * exponent / x, *gradients[1:])


@variant("prod", backward=True)
def gradient_of_a_product_divides(launch: Launch) -> Gradients:
    """The gradient of a product divides it by each factor, which is NaN at zero."""
    gradients, forward = arrived(launch)
    x, dim = forward.args[0].detach(), forward.argument(1, "dim")
    return (forward.incoming.unsqueeze(dim) * x.prod(dim, keepdim=True) / x, *gradients[1:])
