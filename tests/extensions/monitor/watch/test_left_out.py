"""What a monitored training leaves out: each reason is one line of the log, with names."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

from msprobe_hooks import TrainerMon, watch
from tests.support.dumps.training import adam, by_name, model, train


def names(rows, task):
    return [name for name, _ in by_name(rows, task)]


def perceptron(layers: int = 2) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(3, 3) for _ in range(layers)))


def step(one: nn.Module, *optimizers: torch.optim.Optimizer) -> None:
    one(torch.ones(2, 3)).square().sum().backward()
    for optimizer in optimizers:
        optimizer.step()


class TestParameters:
    def test_one_that_is_in_no_optimizer_is_watched_and_named(self, tmp_path, caplog):
        gc.unfreeze()
        one = perceptron()
        optimizer = torch.optim.Adam([each for name, each in one.named_parameters() if name != "1.weight"])
        with watch(one, optimizer, tmp_path, what=["gradients", "parameters", "moments"]) as watcher:
            for _ in range(2):
                step(one, optimizer)
        everything = ["0.weight", "0.bias", "1.weight", "1.bias"]
        for task in ("grad_reduced", "param_origin", "param_updated"):
            assert names(watcher.rows, task) == everything
        assert sorted(names(watcher.rows, "grad_unreduced")) == sorted(everything)
        assert names(watcher.rows, "exp_avg") == ["0.weight", "0.bias", "1.bias"]
        assert caplog.messages == [
            "parameters in no optimizer of this process: 1.weight; add them to the optimizer "
            "if no other rank updates them, or set requires_grad to False if they are meant to be frozen"
        ]

    def test_one_of_another_optimizer_is_left_out_and_named(self, tmp_path, caplog):
        one = perceptron()
        first, second = adam(one[0]), torch.optim.SGD(one[1].parameters())
        with watch(one, first, tmp_path, what=["gradients"]) as watcher:
            step(one, first, second)
        assert names(watcher.rows, "grad_reduced") == ["0.weight", "0.bias"]
        assert caplog.messages == [
            "parameters not monitored, because another optimizer has them: 1.weight, 1.bias; "
            "monitor that optimizer as well"
        ]

    def test_an_optimizer_that_was_replaced_does_not_count(self, tmp_path):
        one = perceptron()
        optimizer = torch.optim.SGD(one.parameters())
        optimizer.itself = optimizer
        optimizer = adam(one[0])
        with watch(one, optimizer, tmp_path, what=["gradients"]) as watcher:
            step(one, optimizer)
        assert names(watcher.rows, "grad_reduced") == ["0.weight", "0.bias", "1.weight", "1.bias"]

    def test_optimizers_that_are_hidden_from_a_search_are_not_said_to_be_missing(self, tmp_path, caplog):
        one = perceptron()
        first, second = adam(one[0]), torch.optim.SGD(one[1].parameters())
        gc.freeze()
        try:
            with watch(one, first, tmp_path, what=["gradients"]):
                step(one, first, second)
        finally:
            gc.unfreeze()
        assert caplog.messages[0].endswith("(optimizers created before gc.freeze() are not seen, and may have them)")

    def test_frozen_ones_are_named_and_of_many_the_first(self, tmp_path, caplog):
        one = perceptron(9).requires_grad_(False)
        one[8].requires_grad_()
        with watch(one, adam(one[8]), tmp_path, what=["gradients"]):
            pass
        assert caplog.messages == [
            "parameters not monitored, because requires_grad is False: "
            "0.weight, 0.bias, 1.weight, 1.bias, 2.weight, 2.bias, 3.weight, 3.bias and 8 more"
        ]

    def test_nothing_is_said_of_them_where_only_modules_are_watched(self, tmp_path, caplog):
        one = perceptron()
        with watch(one, adam(one[0]), tmp_path, what=["activations"]):
            step(one)
        assert caplog.messages == []


class TestTargets:
    @pytest.mark.parametrize(
        ("targets", "modules", "parameters"),
        [
            ({"0": {}}, ["0.input", "0.output"], ["0.weight", "0.bias"]),
            ({"0:0": {}}, ["0.input", "0.output"], ["0.weight", "0.bias"]),
            ({"": {}}, [".input", ".output"], ["0.weight", "0.bias", "1.weight", "1.bias"]),
            ({"0:": {}}, [".input", ".output"], ["0.weight", "0.bias", "1.weight", "1.bias"]),
            ({"": {"output": "tensor"}}, [".output"], ["0.weight", "0.bias", "1.weight", "1.bias"]),
            ({"1.bias": {}}, [], ["1.bias"]),
        ],
    )
    def test_without_fields_everything_is_watched_and_without_a_name_the_model(
        self, tmp_path, targets, modules, parameters
    ):
        one = perceptron()
        optimizer = adam(one)
        with watch(one, optimizer, tmp_path, what=["activations", "gradients"], targets=targets) as watcher:
            step(one, optimizer)
        assert names(watcher.rows, "actv") == modules
        assert names(watcher.rows, "grad_reduced") == parameters

    def test_all_modules_are_watched_next_to_one_without_fields(self, config, trained):
        monitor = TrainerMon(config(targets={"0": {}}, xy_distribution=True, forward_only=True, all_xy=True))
        trained(monitor, 1)
        assert {name.rpartition(".")[0][2:] for name in monitor.generate_xy_metrics()[0]} >= {"0", "1", "2"}

    @pytest.mark.parametrize(
        ("targets", "what", "lines"),
        [
            (
                {"5": {}, "6": {}},
                ["gradients"],
                ["targets: not modules or parameters of the model: '5', '6'"],
            ),
            (
                {"0": {"input": "tensor", "output_grad": "tensor"}, "1": {"input": "tensor"}},
                ["gradients"],
                [
                    "targets requests input, output_grad of '0', '1', "
                    "but activations and activation_gradients are not monitored"
                ],
            ),
            (
                {"0.weight": {}},
                ["activations", "gradients"],
                ["targets names parameters only: activations are not monitored"],
            ),
            (
                {"0": {"input_grad": "tensor", "output_grad": "tensor"}},
                ["activation_gradients"],
                ["step 0 had nothing of targets '0' (input_grad): its input takes no gradient"],
            ),
            ({"0": {}}, ["activation_gradients"], []),
        ],
    )
    def test_what_of_them_is_not_watched_is_named(self, tmp_path, caplog, targets, what, lines):
        one = perceptron()
        optimizer = adam(one)
        with watch(one, optimizer, tmp_path, what=what, targets=targets, format="api"):
            step(one, optimizer)
        assert caplog.messages == lines

    def test_a_module_that_is_never_called_is_named(self, tmp_path, caplog):
        class Looping(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList([nn.Linear(3, 3)])

            def forward(self, x):
                return self.layers[0](x)

        one = Looping()
        with watch(one, None, tmp_path, what=["activations"], targets={"layers": {}, "layers.0": {}}) as watcher:
            step(one)
            watcher.end_step()
        assert caplog.messages == [
            "step 0 had nothing of targets 'layers' (input, output): not called in training mode, or no gradient"
        ]

    def test_a_child_that_is_called_as_a_side_is_not_taken_for_the_side(self, tmp_path, caplog):
        class Around(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.ModuleDict({"input": nn.Linear(3, 3)})

            def forward(self, x):
                return self.inner["input"](x)

        one = Around()
        with watch(one, None, tmp_path, what=["activations"], targets={"inner": {}, "inner.input": {}}) as watcher:
            step(one)
            watcher.end_step()
        assert caplog.messages == [
            "step 0 had nothing of targets 'inner' (input, output): not called in training mode, or no gradient"
        ]

    def test_a_compiled_module_is_not_said_to_be_uncalled(self, tmp_path, caplog):
        one = perceptron()
        optimizer = adam(one)
        compiled = torch.compile(one, backend="eager")
        with watch(one, optimizer, tmp_path, what=["activations"]):
            step(compiled, optimizer)
        torch.compiler.reset()
        assert caplog.messages[-1] == (
            "step 0 had no activations: no module was called in training mode; "
            "torch.compile is in use, and compiled modules run no hooks"
        )


class TestSteps:
    def test_a_step_before_the_first_backward_pass_is_not_blamed_on_the_optimizer(self, tmp_path, caplog):
        one = perceptron()
        optimizer = adam(one)
        with watch(one, optimizer, tmp_path, what=["moments", "updates"]):
            optimizer.step()
            for _ in range(3):
                step(one, optimizer)
        assert caplog.messages == [
            "step 0 had no updates: no parameter had a gradient yet, and before that the optimizer keeps no state"
        ]

    def test_what_they_did_not_bring_is_named_with_the_reason(self, tmp_path, caplog):
        one = model().eval()
        optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
        with watch(one, optimizer, tmp_path, what=["activations", "gradients", "moments", "updates"]):
            train(one, optimizer)
        assert caplog.messages == [
            "step 0 had no activations: no module was called in training mode",
            "step 0 had no updates: the optimizer keeps no Adam moments to compute them from",
            "step 1 had no moments: the optimizer keeps no exp_avg and no exp_avg_sq",
        ]

    def test_nothing_is_said_where_everything_came(self, tmp_path, caplog):
        one = model()
        optimizer = adam(one)
        what = ["activations", "activation_gradients", "gradients", "moments", "parameters", "updates"]
        with watch(one, optimizer, tmp_path, what=what):
            train(one, optimizer)
        assert caplog.messages == []


def test_ranks_that_a_program_of_one_process_does_not_have_are_named(tmp_path, caplog):
    one = perceptron()
    with watch(one, adam(one), tmp_path, ranks=[1, 2]):
        pass
    assert caplog.messages == [
        "nothing is monitored: this process, not distributed, has rank 0, and the ranks to monitor are 1, 2"
    ]


def test_a_configuration_with_targets_that_turns_nothing_on_is_reported(config, caplog):
    TrainerMon(config(targets={"0": {}}))
    (line,) = caplog.messages
    assert line.endswith(": nothing is monitored: xy_distribution, wg_distribution and the like are all false")


class Closed(torch.optim.Optimizer):
    """An optimizer that cannot be asked for its parameters yet."""

    def __init__(self):
        pass

    @property
    def param_groups(self):
        raise RuntimeError("call setup() first")


def test_an_optimizer_that_was_not_given_and_cannot_be_asked_ends_no_training(tmp_path):
    net = model()
    optimizer, closed = torch.optim.Adam(list(net.parameters())[:-1]), Closed()
    with watch(net, optimizer, tmp_path, what=["gradients"]):
        train(net, optimizer, 1)
    assert isinstance(closed, Closed)
