"""What one rank sends is what another receives."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.dumps.communications import Judge, X, Y, call, failing, outcomes
from tests.support.dumps.dump_files import Json, tensor_around, value


def sent(to: int, what: Json = X, **kwargs: Any) -> Json:
    return call("send", [what, value(to)], [what, value(to)], **kwargs)


def received(source: int, what: Json = X, **kwargs: Any) -> Json:
    return call("recv", [None, value(source)], [what, value(source)], **kwargs)


def test_what_is_received_is_what_was_sent(judge: Judge) -> None:
    assert failing(judge(sent(1), received(0))) == {}
    results = judge(sent(1), received(0, Y))
    assert results["0:send.0"].extras["communication"]["ranks"] == [1]
    assert failing(results)["0:send.0"].startswith("data sent differs: rank 0 gave max 1 ")


@pytest.mark.parametrize(
    ("receiving", "reported"),
    [
        (received(0, tensor_around(5)), "shape differs: rank 1: (5,); rank 0: (4,)"),
        (received(0, tag=value(3)), "rank 1 has no such receive; it called recv.0 from rank 0 to rank 1, tag 3"),
        ({}, "rank 1 has no such receive; it did not communicate; its dump has no records"),
    ],
)
def test_a_receive_that_does_not_fit_its_send_is_reported(judge: Judge, receiving: Json, reported: str) -> None:
    assert failing(judge(sent(1), receiving))["0:send.0"] == reported


def test_a_message_that_may_have_been_received_from_any_rank_is_no_failure(judge: Judge) -> None:
    anybody = call("recv", [None], [X])
    assert outcomes(judge(sent(1), anybody)) == {"0:send.0": "skip"}


def test_messages_of_a_batch_are_communications_of_their_own(judge: Judge) -> None:
    def batch(rank: int, arrived: Json) -> Json:
        def message(op: str, what: Json | None) -> Json:
            return {"class_type": "torch.distributed.P2POp", "tensor": what, "op": op, "peer": 1 - rank, "tag": 0}

        return call(
            "batch_isend_irecv",
            [[message("isend", X), message("irecv", X)]],
            [[message("isend", X), message("irecv", arrived)]],
        )

    assert outcomes(judge(batch(0, X), batch(1, X))) == {
        "0:batch_isend_irecv.0 from rank 0 to rank 1": "pass",
        "0:batch_isend_irecv.0 from rank 1 to rank 0": "pass",
    }
    assert set(failing(judge(batch(0, X), batch(1, Y)))) == {"0:batch_isend_irecv.0 from rank 0 to rank 1"}
