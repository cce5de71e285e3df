"""Defects of the backward kernels alone: the results are right, the gradients are not."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tests.corpus.fault import Launch, arrived, plain_name, regraded, variant

Gradients = tuple["torch.Tensor | None", ...]

PRODUCTS = "matmul linear addmm bmm conv2d"
NORMS = "layer_norm batch_norm"
FUNCTIONS = "tanh sigmoid silu pow rsqrt softmax relu mul add"


@variant(f"{PRODUCTS} {NORMS} {FUNCTIONS} embedding cross_entropy", backward=True)
def gradient_one_percent_too_large(launch: Launch) -> Gradients:
    """All gradients are scaled by 1.01."""
    return regraded(launch, lambda gradient: gradient * 1.01)


@variant(f"{PRODUCTS} {NORMS} {FUNCTIONS} embedding", backward=True)
def gradient_a_thousandth_too_large(launch: Launch) -> Gradients:
    """All gradients are scaled by 1.001."""
    return regraded(launch, lambda gradient: gradient * 1.001)


@variant(f"{PRODUCTS} {NORMS} {FUNCTIONS} rsub sub div", backward=True)
def gradient_with_the_wrong_sign(launch: Launch) -> Gradients:
    """All gradients are negated."""
    return regraded(launch, lambda gradient: -gradient)


@variant(f"{PRODUCTS} {NORMS} {FUNCTIONS} lstm", backward=True)
def gradient_is_zero(launch: Launch) -> Gradients:
    """All gradients are zero."""
    return regraded(launch, torch.zeros_like)


@variant("linear addmm conv2d layer_norm batch_norm", backward=True)
def bias_gradient_missing(launch: Launch) -> Gradients:
    """The gradients of biases stay zero."""
    gradients = list(launch.run())
    vectors = [i for i, gradient in enumerate(gradients) if gradient is not None and gradient.dim() == 1]
    if vectors:
        gradients[vectors[-1]] = torch.zeros_like(gradients[vectors[-1]])
    return tuple(gradients)


@variant("linear conv2d addmm", backward=True)
def bias_gradient_of_the_last_sample_missing(launch: Launch) -> Gradients:
    """The bias gradient leaves out the last sample."""
    gradients, forward = arrived(launch)
    incoming = forward.incoming
    last = incoming[-1].sum((-1, -2)) if plain_name(launch.api) == "conv2d" else incoming.flatten(0, -2)[-1]
    return tuple(each - last if each is not None and each.dim() == 1 else each for each in gradients)


@variant(f"{PRODUCTS} {NORMS} {FUNCTIONS} embedding lstm", backward=True)
def gradient_in_bfloat16(launch: Launch) -> Gradients:
    """Gradients of float32 tensors pass through bfloat16."""
    return regraded(launch, lambda gradient: gradient.bfloat16().to(gradient.dtype))


@variant(f"{PRODUCTS} {NORMS} {FUNCTIONS} embedding", backward=True)
def gradient_in_float16(launch: Launch) -> Gradients:
    """Gradients of float32 tensors pass through float16, without a loss scale."""
    return regraded(launch, lambda gradient: gradient.half().to(gradient.dtype))


@variant(f"{PRODUCTS} {NORMS} {FUNCTIONS} embedding", backward=True)
def gradient_row_dropped(launch: Launch) -> Gradients:
    """The last row of each gradient stays zero."""

    def drop(gradient: torch.Tensor) -> torch.Tensor:
        gradient = gradient.contiguous()
        gradient.reshape(-1, gradient.shape[-1] if gradient.dim() else 1)[-1] = 0
        return gradient

    return regraded(launch, drop)


@variant("embedding", backward=True)
def repeated_index_overwrites(launch: Launch) -> Gradients:
    """The gradient of an embedding keeps only the last of repeated indices."""
    (right,), forward = arrived(launch)
    gradient = torch.zeros_like(right)
    gradient[forward.args[0].reshape(-1)] = forward.incoming.reshape(-1, gradient.shape[1])
    return (gradient,)


@variant("softmax", backward=True)
def softmax_gradient_without_its_sum(launch: Launch) -> Gradients:
    """The gradient of softmax lacks the term that couples the elements."""
    (right,), forward = arrived(launch)
    return ((forward.output.detach() * forward.incoming).to(right.dtype),)


@variant("layer_norm", backward=True)
def norm_gradient_without_its_means(launch: Launch) -> Gradients:
    """The gradient of layer norm for its input lacks the subtracted means."""
    gradients = launch.run()
    first = gradients[0]
    return (first + first.abs().mean(-1, keepdim=True), *gradients[1:])


@variant("relu", backward=True)
def relu_gradient_everywhere(launch: Launch) -> Gradients:
    """The gradient of relu ignores the sign of the input."""
    gradients, forward = arrived(launch)
    return tuple(forward.incoming.clone() for _ in gradients)


@variant("relu", backward=True)
def relu_gradient_at_zero(launch: Launch) -> Gradients:
    """The gradient of relu at zero is 1."""
    return _at_points(launch, lambda x: x == 0, lambda incoming: incoming)


@variant("abs", backward=True)
def absolute_value_gradient_at_zero(launch: Launch) -> Gradients:
    """The gradient of abs at zero is that of its right side."""
    return _at_points(launch, lambda x: x == 0, lambda incoming: incoming)


@variant("clamp", backward=True)
def clamp_gradient_at_its_edges(launch: Launch) -> Gradients:
    """The gradient of clamp at its edges is 0."""
    forward = launch.forward
    edges = [] if forward is None else [forward.argument(1, "min"), forward.argument(2, "max")]
    return _at_points(
        launch,
        lambda x: torch.stack([x == edge for edge in edges if edge is not None]).any(0),
        torch.zeros_like,
    )


def _at_points(
    launch: Launch, is_point: Callable[[torch.Tensor], torch.Tensor], gradient: Callable[[torch.Tensor], torch.Tensor]
) -> Gradients:
    """Return the gradients with another one of the first argument at some points."""
    (right, *others), forward = arrived(launch)
    if right is None:
        return (right, *others)
    return (torch.where(is_point(forward.args[0].detach()), gradient(forward.incoming).to(right.dtype), right), *others)


@variant("max_pool2d", backward=True)
def pooling_gradient_shifted(launch: Launch) -> Gradients:
    """The gradient of max pooling goes to the neighbour of the greatest element."""
    return regraded(launch, lambda gradient: gradient.roll(1, -1))


@variant("mul div sub add rsub", backward=True)
def gradients_of_operands_swapped(launch: Launch) -> Gradients:
    """The gradients of the two operands change places."""
    gradients = launch.run()
    if len(gradients) != 2 or gradients[0] is None or gradients[1] is None or gradients[0].shape != gradients[1].shape:
        return tuple(gradients)
    return gradients[1].clone(), gradients[0].clone()


@variant("cross_entropy", backward=True)
def loss_gradient_not_averaged(launch: Launch) -> Gradients:
    """The gradient of a mean loss is that of the sum."""
    return regraded(launch, lambda gradient: gradient * gradient.shape[0])


@variant("linear addmm matmul", backward=True)
def weight_gradient_coarse(launch: Launch) -> Gradients:
    """Gradients of matrices have absolute errors of 2^-12 of their mean size, as from operands in TF32."""

    def change(gradient: torch.Tensor) -> torch.Tensor:
        if gradient.dtype != torch.float32 or gradient.dim() < 2:
            return gradient
        errors = torch.sin(torch.arange(gradient.numel(), dtype=torch.float64)).view(gradient.shape)
        return gradient + (gradient.abs().mean() * 2.0**-12 * errors).to(gradient.dtype)

    return regraded(launch, change)


@variant("dropout", backward=True)
def dropout_gradient_with_another_mask(launch: Launch) -> Gradients:
    """The gradient of dropout goes through a mask of its own."""
    return regraded(launch, lambda gradient: gradient.flip(-1))


@variant("dropout", backward=True)
def dropout_gradient_unscaled(launch: Launch) -> Gradients:
    """The gradient of dropout lacks the factor 1 / (1 - p)."""
    return regraded(launch, lambda gradient: gradient * 0.9)


@variant("scaled_dot_product_attention", backward=True)
def attention_gradient_without_the_scale(launch: Launch) -> Gradients:
    """The gradients of query and key lack the scale of the scores."""
    gradients = launch.run()
    # The run that shows the mask asks for the gradient of the values alone.
    return gradients if len(gradients) < 3 else (gradients[0] * 2, gradients[1] * 2, *gradients[2:])


@variant("lstm", backward=True)
def recurrent_gradient_cut(launch: Launch) -> Gradients:
    """The gradient of an LSTM's input is that of the last step alone."""
    gradients = list(launch.run())
    if gradients[0] is not None:
        gradients[0] = gradients[0].clone()
        gradients[0][:, :-1] = 0
    return tuple(gradients)
