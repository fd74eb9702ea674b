"""Bytes in JSON come back as they were."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.codec.jsonbytes import bytes_of, json_of, json_size


@given(st.none() | st.binary() | st.text().map(str.encode))
def test_bytes_come_back(data: bytes | None) -> None:
    assert bytes_of(json.loads(json.dumps(json_of(data)))) == data


@given(st.none() | st.binary() | st.text().map(str.encode) | st.text('\n\t"\\\0\x1f\x7f/', min_size=1).map(str.encode))
def test_the_size_is_enough(data: bytes | None) -> None:
    assert len(msgspec.json.encode(json_of(data))) <= json_size(data) <= 6 * len(data or b"") + 20


def test_text_stays_text() -> None:
    assert json_of("Zürich".encode()) == "Zürich"
    assert json_of(b"\xff") == {"base64": "/w=="}


@pytest.mark.parametrize("wrong", [1, [], {}, {"base64": 1}, {"base64": "?"}, {"base64": "", "more": ""}, "\ud800"])
def test_what_is_no_bytes_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"base64|null"):
        bytes_of(wrong)
