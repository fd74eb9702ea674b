"""The messages that are Duramen's own, byte for byte."""

from typing import Any

import pytest

from duramen.codec.kafka.messages import REQUESTS, RESPONSES
from duramen.codec.kafka.versions import ApiKey

CASES: list[tuple[ApiKey, str, dict[str, Any], str]] = [
    (
        ApiKey.BEGIN_BATCH, "request", {"query_id": "q", "run_id": "r", "batch_id": 7},
        "0271 0272 0000000000000007 00",
    ),
    (
        ApiKey.BEGIN_BATCH, "response",
        {"throttle_time_ms": 0, "error_code": 90, "error_message": "no", "run": -1, "decided": False},
        "00000000 005a 036e6f ffffffffffffffff 00 00",
    ),
    (
        ApiKey.DECIDE_BATCH, "request",
        {
            "query_id": "q", "run": 2, "batch_id": 7, "commit": True, "digest": b"\x01",
            "winners": [{"partition": 3, "attempt": 4, "producer_id": 5, "producer_epoch": 6}],
        },
        "0271 0000000000000002 0000000000000007 01 0201 02 00000003 0000000000000004 0000000000000005 0006 00 00",
    ),
    (
        ApiKey.DECIDE_BATCH, "response", {"throttle_time_ms": 0, "error_code": 0, "error_message": None},
        "00000000 0000 00 00",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("key", "kind", "message", "encoded"), CASES)
def test_their_bytes(key: ApiKey, kind: str, message: dict[str, Any], encoded: str) -> None:
    table = (REQUESTS if kind == "request" else RESPONSES)[key]
    assert table.encode(0, message) == bytes.fromhex(encoded)
    assert table.decode(0, memoryview(bytes.fromhex(encoded)), 0) == message
