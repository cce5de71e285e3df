"""``tokens.jsonl`` next to a dump: which request and position each row of a forward pass belongs to.

An engine packs tokens of many requests into one tensor, a trainer pads them or packs them otherwise; the rows of both
are matched by request and position. Readers of dumps ignore the file, and a dump is whole without it.
"""

from __future__ import annotations

from typing import Final

import msgspec

FILE: Final = "tokens.jsonl"
# More than any forward pass has.
_MOST_TOKENS = 2**31


class PassTokens(msgspec.Struct, frozen=True, omit_defaults=True):
    """The tokens of one forward pass, request after request in the order of its rows.

    Attributes:
        requests: The name of each request.
        lengths: How many tokens of it the pass has.
        starts: The position of the first of these in the request, from 0; empty where it follows from earlier passes.
        token_ids: The tokens of all requests; empty where the dump holds them.
        logprobs: The log probability that the run gave each token, None where it gave none.
    """

    requests: list[str]
    lengths: list[int]
    starts: list[int] = []
    token_ids: list[int] = []
    logprobs: list[float | None] = []

    def problem(self) -> str:
        """Return what does not fit together, empty where all does."""
        if len(self.lengths) != len(self.requests):
            return f"{len(self.lengths)} lengths for {len(self.requests)} requests"
        if not all(0 <= length < _MOST_TOKENS for length in self.lengths):
            return "a length that is no number of tokens"
        if self.starts and len(self.starts) != len(self.requests):
            return f"{len(self.starts)} starts for {len(self.requests)} requests"
        if not all(0 <= start < _MOST_TOKENS for start in self.starts):
            return "a start that is no position"
        total = sum(self.lengths)
        for name, values in (("token_ids", self.token_ids), ("logprobs", self.logprobs)):
            if values and len(values) != total:
                return f"{len(values)} {name} for {total} tokens"
        return ""
