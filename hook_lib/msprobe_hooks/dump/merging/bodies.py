"""The JSON of one record, read and written."""

from __future__ import annotations

import json
from typing import Any

from msprobe_hooks.decoding import JsonError, decode_json
from msprobe_hooks.dump.schema import record_path
from msprobe_hooks.errors import RecordError


def decode_record(name: str, text: bytes) -> dict[str, Any]:
    """Return the body of a record. Raises RecordError where it is no JSON object."""
    try:
        body = decode_json(text)
    except JsonError as error:
        raise RecordError(record_path(name), str(error)) from None
    if not isinstance(body, dict):
        raise RecordError(record_path(name), "expected an object")
    return body


def encode_record(body: Any) -> bytes:
    """Return a body as it stands in a file, NaN and infinities as bare tokens."""
    return json.dumps(body).encode()
