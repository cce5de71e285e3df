"""How many signs of a gradient two runs have to share."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class SignSimilarity(msgspec.Struct, frozen=True):
    """The least share of equal signs at the first step, and how far it may drop from one step to the next.

    The defaults are those of msprobe's documentation of its gradient probe.
    """

    name: ClassVar[str] = "sign_similarity"
    first: Share = 0.97
    drop: Share = 0.03
