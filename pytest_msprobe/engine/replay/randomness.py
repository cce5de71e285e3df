"""Whether a call's result is random, and what it must be like then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_msprobe.engine.replay.call import operation
from pytest_msprobe.engine.replay.random_apis.properties import RandomProperty
from pytest_msprobe.engine.replay.traits import traits_of


def random_property(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return what the result of this call must be like, or None where it is not random.

    ``api`` is the API's name without its type, such as ``dropout`` or ``bernoulli_``; a namespace before it and
    an overload after it may stay (``nn.dropout2d``, ``bernoulli.p``). ``args`` and ``kwargs`` are the call's
    inputs before the call, tensors on the CPU. A call that happens not to be random, such as dropout outside of
    training, gives None too.

    Raises TypeError where the call's arguments do not fit the API.
    """
    property_of = traits_of(api).random
    if property_of is None:
        return None
    try:
        return property_of(operation(api), args, kwargs)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, ValueError) as error:
        # A tensor of several elements for a probability, words for a shape: the call itself could not use them.
        raise TypeError(f"the recorded arguments of {api} do not fit it: {error}") from error
