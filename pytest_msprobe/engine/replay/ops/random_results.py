"""Rows of operations with random results, or with whatever was in memory."""

from __future__ import annotations

from pytest_msprobe.engine.replay.inputs.constraints import values
from pytest_msprobe.engine.replay.ops.traits import OpInfo, Rows
from pytest_msprobe.engine.replay.random_apis import (
    distributions,
    dropout,
    factories,
    probability_switch,
    sampling,
    unverifiable,
)
from pytest_msprobe.engine.replay.random_apis.random_property import REQUIRED

ROWS: Rows = (
    # Dropout and its like.
    (
        "dropout dropout_ native_dropout feature_dropout feature_dropout_ dropout1d dropout2d dropout3d",
        OpInfo(random=dropout.dropout, switch=probability_switch.probability("p", 1)),
    ),
    (
        "_fused_dropout",
        OpInfo(random=dropout.unconditional_dropout, switch=probability_switch.probability("p", 1, 1.0)),
    ),
    (
        "alpha_dropout alpha_dropout_ feature_alpha_dropout feature_alpha_dropout_",
        OpInfo(random=dropout.alpha_dropout, switch=probability_switch.probability("p", 1)),
    ),
    ("rrelu rrelu_", OpInfo(random=dropout.rrelu, switch=probability_switch.one_slope(1))),
    ("rrelu_with_noise rrelu_with_noise_", OpInfo(random=dropout.rrelu, switch=probability_switch.one_slope(2))),
    # ... by the values of the input,
    ("bernoulli", OpInfo(constraint=values.unit_interval, random=sampling.bernoulli)),
    ("bernoulli_", OpInfo(random=sampling.bernoulli)),
    ("multinomial", OpInfo(constraint=values.probabilities, random=sampling.multinomial)),
    ("poisson", OpInfo(constraint=values.probabilities, random=sampling.poisson)),
    ("gumbel_softmax", OpInfo(random=sampling.gumbel_softmax)),
    ("randperm", OpInfo(random=sampling.randperm, found_in="torch")),
    # ... from a distribution,
    ("rand", OpInfo(random=factories.rand, found_in="torch")),
    ("rand_like", OpInfo(random=factories.rand)),
    ("randn", OpInfo(random=factories.randn, found_in="torch")),
    ("randn_like", OpInfo(random=factories.randn)),
    ("uniform uniform_", OpInfo(random=factories.uniform)),
    ("normal", OpInfo(random=factories.normal, found_in="torch")),
    ("normal_ normal_functional", OpInfo(random=factories.normal_in_place)),
    ("randint", OpInfo(random=factories.randint, found_in="torch")),
    ("randint_like", OpInfo(random=factories.randint_like)),
    ("random random_", OpInfo(random=factories.random)),
    (
        "exponential exponential_",
        OpInfo(random=factories.one_parameter(distributions.exponential, 1.0)),
    ),
    ("geometric geometric_", OpInfo(random=factories.one_parameter(distributions.geometric, REQUIRED))),
    (
        "cauchy cauchy_",
        OpInfo(random=factories.two_parameters(distributions.cauchy, ("median", "sigma"), (0.0, 1.0))),
    ),
    (
        "log_normal log_normal_",
        OpInfo(random=factories.two_parameters(distributions.log_normal, ("mean", "std"), (1.0, 2.0))),
    ),
    (
        """fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d
        fractional_max_pool3d_with_indices""",
        OpInfo(random=unverifiable.fractional_pooling),
    ),
    # Whatever was in memory.
    ("empty_like empty_with_format Empty EmptyLike NewEmpty", OpInfo(random=unverifiable.undefined)),
    ("empty empty_permuted empty_strided", OpInfo(random=unverifiable.undefined, found_in="torch")),
    ("new_empty", OpInfo(random=unverifiable.undefined, bare_sizes=True, found_in="torch.Tensor")),
    ("new_empty_strided", OpInfo(random=unverifiable.undefined, found_in="torch.Tensor")),
)
