"""Rows of operations with random results, or with whatever was in memory."""

from __future__ import annotations

from msprobe_hooks.dump.effects import UNDEFINED_RESULTS
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
from pytest_msprobe.engine.replay.random_apis.sampled_indices import REQUIRED

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
    ("randperm", OpInfo(random=sampling.randperm)),
    # ... from a distribution,
    ("rand rand_like", OpInfo(random=factories.rand)),
    ("randn randn_like", OpInfo(random=factories.randn)),
    ("uniform uniform_", OpInfo(random=factories.uniform)),
    ("normal", OpInfo(random=factories.normal)),
    ("normal_ normal_functional", OpInfo(random=factories.normal_in_place)),
    ("randint", OpInfo(random=factories.randint)),
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
    (" ".join(sorted(UNDEFINED_RESULTS - {"new_empty"})), OpInfo(random=unverifiable.undefined)),
    ("new_empty", OpInfo(random=unverifiable.undefined, bare_sizes=True)),
)
