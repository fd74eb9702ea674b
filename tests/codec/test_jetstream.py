"""JetStream's answers, read by an unmodified client's own code."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.js.api import PubAck
from nats.js.errors import APIError, NotFoundError, ServerError, ServiceUnavailableError

from duramen.codec import jetstream
from duramen.codec.jetstream import AckEncoder, ApiError, encode_error


@given(st.text(max_size=20), st.integers(0, 99), st.integers(0, 1 << 62))
def test_acknowledgements(stream: str, partition: int, offset: int) -> None:
    encoder = AckEncoder(stream, partition)
    ack = json.loads(encoder.encode(offset))
    assert ack == {"stream": stream, "seq": offset + 1, "partition": partition, "offset": offset}
    assert json.loads(encoder.encode_duplicate(offset)) == ack | {"duplicate": True}
    known = PubAck.from_response(json.loads(encoder.encode_duplicate(offset)))
    assert (known.stream, known.seq, known.duplicate) == (stream, offset + 1, True)


def test_errors_are_those_that_clients_know() -> None:
    kinds: dict[ApiError, type[APIError]] = {
        jetstream.STREAM_NOT_FOUND: NotFoundError,
        jetstream.STORAGE_FULL: ServerError,
        jetstream.INSUFFICIENT_RESOURCES: ServiceUnavailableError,
    }
    for error, kind in kinds.items():
        answer = json.loads(encode_error("s", error, "why"))
        assert answer["stream"] == "s"
        client: Any = APIError
        with pytest.raises(kind) as raised:
            client.from_error(answer["error"])
        assert raised.value.err_code == error.err_code
        assert raised.value.description == f"{error.description}: why"
