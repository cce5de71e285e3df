"""A step of decoding in vLLM: changes of tokens, positions, lengths and the slots of the next keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_msprobe.extensions.npu_operators.reference_arguments import refuse

if TYPE_CHECKING:
    from torch import Tensor


def npu_advance_step_flashattn(
    input_tokens: Tensor,
    sampled_token_ids: Tensor,
    input_positions: Tensor,
    seq_lens: Tensor,
    slot_mapping: Tensor,
    block_tables: Tensor,
    num_seqs: int,
    num_queries: int,
    block_size: int,
    *,
    spec_token: Tensor | None = None,
    accepted_num: Tensor | None = None,
) -> None:
    """Move every sequence on by what was sampled, in place, as vLLM's ``advance_step_flashattn`` does.

    Of each of the first ``num_queries`` sequences the sampled token is the next one, its position is the length, which
    grows by one, and its slot is that of the position in the block that its row of ``block_tables`` names. Of the
    others token and position become 0 and the slot -1.

    With ``spec_token`` (num_seqs, n) all but the block tables hold 1 + n numbers for each sequence: the last sampled
    token that is not -1, then ``spec_token``; positions move on by 1 + ``accepted_num``, lengths are one more, and
    slots are those of the positions (op-plugin's documentation). Raises NotImplementedError for one of both arguments
    alone.
    """
    api = "npu_advance_step_flashattn"
    if spec_token is None:
        refuse(api, **{"accepted_num alone": accepted_num})
        count = num_queries
        input_tokens[:count] = sampled_token_ids.reshape(-1)[:count]
        input_positions.reshape(-1)[:count] = seq_lens[:count]
        seq_lens[:count] += 1
        slot_mapping[:count] = _slots(input_positions.reshape(-1)[:count].unsqueeze(1), block_tables, block_size)[:, 0]
        input_tokens[count:num_seqs] = 0
        input_positions.reshape(-1)[count:num_seqs] = 0
        slot_mapping[count:num_seqs] = -1
        return
    if accepted_num is None:
        raise NotImplementedError(f"{api} has no golden definition with spec_token alone")
    by_sequence = (num_seqs, 1 + spec_token.shape[1])
    sampled = sampled_token_ids.reshape(by_sequence)
    # how many tokens are before the first -1
    valid = (sampled >= 0).long().cumprod(1).sum(1)
    tokens = input_tokens.view(by_sequence)
    tokens[:, 0] = sampled.gather(1, (valid - 1).clamp(min=0).unsqueeze(1))[:, 0]
    tokens[:, 1:] = spec_token
    positions = input_positions.view(by_sequence)
    positions += 1 + accepted_num.unsqueeze(1)
    seq_lens.view(by_sequence).copy_(positions + 1)
    slot_mapping.view(by_sequence).copy_(_slots(positions, block_tables, block_size))


def _slots(positions: Tensor, block_tables: Tensor, block_size: int) -> Tensor:
    """Return the slots of positions (sequences, n)."""
    blocks = block_tables[: len(positions)].gather(1, (positions // block_size).to(block_tables.dtype).long())
    return blocks * block_size + positions % block_size
