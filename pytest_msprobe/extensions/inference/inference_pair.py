"""A run of an engine and one of a trainer, opened: paired tokens, compared values, and unused evidence."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from msprobe_hooks.dump.values import Value
from msprobe_hooks.errors import DumpError
from pytest_msprobe.extensions.inference.forward_judge import ForwardJudge
from pytest_msprobe.extensions.inference.log_probabilities import (
    LogProbabilities,
    advice,
    log_probabilities,
    measured_kl,
    measured_weights,
)
from pytest_msprobe.extensions.inference.noted_causes import Finding, found_causes
from pytest_msprobe.extensions.inference.passes import read_passes
from pytest_msprobe.extensions.inference.profile import open_profile, require_tensors
from pytest_msprobe.extensions.inference.recorded_weights import RecordedWeights, compare_weights
from pytest_msprobe.extensions.inference.run_values import INPUT, LOGITS, RunValues, compared_names
from pytest_msprobe.extensions.inference.token_layout import UnalignedError
from pytest_msprobe.extensions.inference.token_pairs import SIDES, SideName, TokenPairs, token_pairs
from pytest_msprobe.extensions.inference.value_rows import log_probability_row, value_row, weight_row
from pytest_msprobe.extensions.model_names.fused_parts import ModelSizes
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, ComparedCall, Outcome, Row

if TYPE_CHECKING:
    from pytest_msprobe.extensions.model_names.model_names import ModelNames
    from pytest_msprobe.modes.compare.judging.shape_changes import MicroBatches


def unused(pairs: TokenPairs, compared: LogProbabilities | None) -> Iterator[str]:
    """Yield a line where noted log probabilities are not compared."""
    is_noted = ~np.isnan(pairs.logprobs)
    if compared is not None and compared.source != "from the logits":
        is_noted[compared.pairs] = False
    counts = [(side, int(is_noted[:, number].sum())) for number, side in enumerate(SIDES)]
    alone = [f"{count} of the {side}" for side, count in counts if count]
    if alone:
        yield (
            f"noted log probabilities not compared: {' and '.join(alone)}, of tokens that the other run neither noted "
            "nor has logits for"
            if compared is None or compared.source != "noted by both runs"
            else f"noted log probabilities not compared: {' and '.join(alone)}, which the other run did not note"
        )


def layout_notes(side: SideName, run: RunValues) -> Iterator[str]:
    """Yield what was noted or given of the tokens and is not used, and how many passes have no tokens."""
    notes = Counter(note for one in run.passes if one.layout is not None for note in one.layout.notes)
    for note, count in notes.items():
        yield f"{side}: {note}" + (f" ({count} passes)" if count > 1 else "")
    if run.left_out:
        yield f"{side}: {run.left_out} of {run.left_out + len(run.passes)} passes left out: nothing says their tokens"


#: The item of the log probabilities.
LOG_PROBABILITIES = "log_probabilities"
#: Those of what they mean for a training: how far the distributions are apart, and the weights of importance sampling.
KL, WEIGHTS = f"{LOG_PROBABILITIES}.kl", f"{LOG_PROBABILITIES}.weights"
#: The item that fails where many tokens have no partner.
TOKENS = "tokens"
# A choice: more than one in so many.
_LOST_TOKENS = 10
#: A choice: more than one token in so many that is clipped is wrong, a single one is warned of.
_CLIPPED_TOKENS = 1000


class InferencePair:
    """Two runs of one model: ``target`` and ``golden`` are files or folders of steps and ranks.

    ``inherited`` is how many times the error of its inputs a value may have without being a culprit, ``clip`` how far
    from 1 the ratio of probabilities may be before a clipped objective drops a token. ``batches`` are those of two runs
    of one step in other micro-batches. ``profile`` is a recording of the golden run's step in another precision, or the
    report of its comparison with the golden run.

    Raises DumpError where a run cannot be used, or both share no token or no module.
    """

    index = 0

    def __init__(
        self,
        target: Path,
        golden: Path,
        names: ModelNames,
        *,
        sizes: ModelSizes | None = None,
        inherited: float = 10.0,
        clip: float = 0.2,
        batches: MicroBatches | None = None,
        profile: Path | None = None,
    ) -> None:
        self.target_path, self.golden_path = target, golden
        self.profile_path = profile
        self.clip = clip
        self.batches = batches
        sizes = sizes or ModelSizes()
        passes = [read_passes(path, names, batches) for path in (target, golden)]
        for path, forward_passes in zip((target, golden), passes, strict=True):
            require_tensors(path, forward_passes)
        self.target, self.golden = (RunValues(forward_passes, names, sizes) for forward_passes in passes)
        for path, run, forward_passes in ((target, self.target, passes[0]), (golden, self.golden, passes[1])):
            if not run.passes:
                raise DumpError(
                    f"{path}: nothing says which token each row is of {len(forward_passes)} forward passes; "
                    "record with task tensor, or name the tokens by note_tokens()"
                )
        self.target.widths, self.golden.widths = self.golden.own_widths, self.target.own_widths
        self.weights = [RecordedWeights(forward_passes, names, sizes) for forward_passes in passes]
        self.weights[0].widths, self.weights[1].widths = self.weights[1].rows, self.weights[0].rows
        self.values = compared_names(self.target, self.golden)
        if not self.values:
            raise DumpError(
                f"{target}: no module of it is one of {golden}; compare runs of one model, or name their modules by "
                "--msprobe-mapping with model_names"
            )
        sides = self.target, self.golden
        own = None if profile is None else open_profile(profile, self.golden, self.target, names, batches, inherited)
        self._judge = ForwardJudge(self.values, *sides, self.pairs, inherited=inherited, profile=own)

    @cached_property
    def pairs(self) -> TokenPairs:
        """The tokens that both runs computed."""
        layouts = [[one.layout for one in run.passes if one.layout is not None] for run in (self.target, self.golden)]
        pairs = token_pairs(*layouts)
        if not len(pairs):
            for path, side in zip((self.target_path, self.golden_path), layouts, strict=True):
                if all(segment.token_ids is None for layout in side for segment in layout.segments):
                    raise DumpError(
                        f"{path}: neither recorded nor noted which tokens it computed; record the embedding, or note "
                        "the tokens of both runs by note_tokens(token_ids=), or their requests by the same names"
                    )
            ours, theirs = (sum(layout.tokens for layout in side) for side in layouts)
            raise DumpError(
                f"{self.target_path}: none of its {ours} tokens is one of the {theirs} of {self.golden_path}; give the "
                "trainer the sequences that the engine computed"
            )
        return pairs

    @cached_property
    def weight_names(self) -> Mapping[str, Sequence[str]]:
        """The parameters that both runs recorded, by the value whose item compares them."""
        names = defaultdict[str, list[str]](list)
        modules = {name for name in self.values if not name.endswith(INPUT)}
        for name in self.weights[1].parameters:
            if name in self.weights[0].parameters:
                module = name
                while module and module not in modules:
                    module = module.rpartition(".")[0]
                names[module or name].append(name)
        return names

    @cached_property
    def orders(self) -> Mapping[str, int]:
        """The items in the order of the forward pass, with their numbers."""
        names = [*self.values, *(name for name in self.weight_names if name not in self.values)]
        has_logs = self.target.has(LOGITS) and self.golden.has(LOGITS)
        has_logs = has_logs or not np.isnan(self.pairs.logprobs).all()
        names += [LOG_PROBABILITIES, KL, WEIGHTS] if has_logs else []
        names += [TOKENS] if self.lost_tokens else []
        return {name: order for order, name in enumerate(names)}

    @cached_property
    def lost_tokens(self) -> str:
        """Return what is wrong where many tokens of the target have no partner, as one line; empty where nothing is."""
        lost, whole = self.pairs.target_only, self.pairs.target_only + len(self.pairs)
        if lost * _LOST_TOKENS <= whole:
            return ""
        return (
            f"{lost} of {whole} tokens of the target are in no sequence of the golden run: padding without a mask, "
            "tokens in another order, or other prompts"
        )

    @property
    def first_culprit(self) -> str:
        """The value where the runs part, as far as it is known; empty where none is."""
        return self._judge.first.name if self._judge.first else ""

    def compare(self, name: str) -> ComparedCall:
        """Compare what an item names. Raises DumpError where a file is unusable."""
        if name in (LOG_PROBABILITIES, KL, WEIGHTS):
            return self._log_probabilities(name)
        if name == TOKENS:
            side = Value(TOKENS, "int", text=str(len(self.pairs)))
            row = Row(
                group="input", place=TOKENS, target=side, golden=side, outcome="fail", messages=(self.lost_tokens,)
            )
            return self._call(TOKENS, "fail", [row], problem=self.lost_tokens)
        weights = [(one, compare_weights(one, *self.weights)) for one in self.weight_names.get(name, ())]
        rows = [weight_row(one, error, self.weights) for one, error in weights]
        judged = self._judge.judge(self.orders[name]) if name in self.values else None
        if judged is not None:
            rows.append(value_row(judged, self.target, self.golden, self.pairs))
        wrong = [one for one, error in weights if error.differs]
        outcome: Outcome = "fail" if wrong else judged.outcome if judged else "pass"
        if judged is not None and judged.outcome == "pass" and judged.is_coarser:
            outcome = "fail" if wrong else "warn"
        cause = "culprit" if wrong else judged.cause if judged else ""
        return self._call(name, outcome, rows, cause=cause, problem=judged.problem if judged else "")

    @property
    def log_probabilities(self) -> LogProbabilities | None:
        """The log probabilities that both runs gave their tokens; None where they cannot be compared."""
        return self._log_probabilities_or_error[0]

    @property
    def log_probabilities_problem(self) -> str:
        """Return why log probabilities cannot be compared, empty where they can or where neither run has any."""
        error = self._log_probabilities_or_error[1]
        return "" if error is None else str(error)

    @cached_property
    def _log_probabilities_or_error(self) -> tuple[LogProbabilities | None, UnalignedError | DumpError | None]:
        try:
            return log_probabilities(self.target, self.golden, self.pairs), None
        except (UnalignedError, DumpError) as error:
            return None, error

    @cached_property
    def evidence_notes(self) -> Sequence[str]:
        """Lines on what the programs noted and is not used, or contradicts what they recorded."""
        lines: list[str] = []
        for side, run in zip(SIDES, (self.target, self.golden), strict=True):
            lines += layout_notes(side, run)
        return [*lines, *unused(self.pairs, self.log_probabilities)]

    @cached_property
    def findings(self) -> Sequence[Finding]:
        """The log probabilities of each run that are not those of logits, with their causes."""
        return found_causes(self.target, self.golden, self.pairs)

    @property
    def finding_lines(self) -> Sequence[str]:
        """The causes of log probabilities that differ, as lines."""
        return [finding.line for finding in self.findings if finding.line]

    def _log_probabilities(self, name: str) -> ComparedCall:
        compared, error = self._log_probabilities_or_error
        if isinstance(error, DumpError):
            raise error
        if compared is None or not len(compared.pairs):
            problem = "no token has a log probability in both runs: " + (
                str(error) if error else "its next token is unknown, or a run has neither logits nor noted ones of it"
            )
            return self._call(name, "skip", [], problem=problem)
        if name == LOG_PROBABILITIES:
            return self._clipped(compared)
        measured = measured_kl(compared, self.clip) if name == KL else measured_weights(compared, self.clip, self.pairs)
        outcome: Outcome = "pass" if measured.is_within else "fail"
        message = () if measured.is_within else (measured.text,)
        row = log_probability_row(name, compared, self.pairs, outcome, measured.metrics, message)
        cause = "" if measured.is_within else "inherited"
        return self._call(name, outcome, [row], cause=cause, problem=measured.text)

    def _clipped(self, compared: LogProbabilities) -> ComparedCall:
        clipped = compared.clipped(self.clip)
        count = int(clipped.sum())
        outcome: Outcome = "pass" if not count else "fail" if count * _CLIPPED_TOKENS > len(clipped) else "warn"
        worst = int(compared.worst(1)[0])
        at = self.pairs.label(int(compared.pairs[worst]), compared.ahead)
        text = (
            f"{count} of {len(clipped)} tokens clipped at {self.clip:g}; "
            f"worst {compared.target[worst]:.4f} against {compared.golden[worst]:.4f} at {at}"
            + (f"; {compared.source}" if compared.ahead == 0 else "")
        )
        metrics = {"clipped_share": count / len(clipped), SCALED_ERROR: float(abs(compared.log_ratio[worst]))}
        message = (text,) if count else ()
        row = log_probability_row(LOG_PROBABILITIES, compared, self.pairs, outcome, metrics, message)
        return self._call(LOG_PROBABILITIES, outcome, [row], cause="inherited" if count else "", problem=text)

    def _call(
        self, name: str, outcome: Outcome, rows: Sequence[Row], *, cause: str = "", problem: str = ""
    ) -> ComparedCall:
        return ComparedCall(
            record=name,
            pair=self.index,
            order=self.orders[name],
            mode="tensor",
            target=self.target.record(name) or name,
            golden=self.golden.record(name) or name,
            partner="mapping",
            outcome=outcome,
            cause=cause,  # type: ignore[arg-type]
            reason=problem,
            rows=tuple(rows),
        )

    def advice(self, name: str) -> str:
        """Return what to check of a value that was judged."""
        if name in (LOG_PROBABILITIES, KL, WEIGHTS):
            noted = not np.isnan(self.pairs.logprobs).all()
            lines = "\n".join(self.finding_lines)
            return lines or ("check how they were noted, and of which token each is" if noted else "")
        return advice(self._judge.judge(self.orders[name])) if name in self.values else ""
