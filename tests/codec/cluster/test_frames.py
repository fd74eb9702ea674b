"""Frames, however they are cut; what is none is refused, and lengths promise nothing."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import RequestInvalid
from duramen.codec.cluster.calls import PendingCalls
from duramen.codec.cluster.channels import Subject
from duramen.codec.cluster.frames import ALIVE, HEADER_BYTES, FrameReader, PeerFrame, PeerKind, encode_frame

LARGEST = 100_000

frames = st.builds(
    lambda kind, subject, number, body: PeerFrame(kind, subject, 0 if kind is PeerKind.MESSAGE else number, body),
    st.sampled_from([PeerKind.MESSAGE, PeerKind.REQUEST, PeerKind.ANSWER]),
    st.sampled_from(Subject),
    st.integers(1, (1 << 32) - 1),
    st.one_of(st.binary(max_size=50), st.integers(0, 60_000).map(lambda size: b"b" * size)),
)


def encoded(frame: PeerFrame) -> bytes:
    pieces = [bytes(frame.body[:3]), bytes(frame.body[3:])]
    return b"".join(bytes(piece) for piece in encode_frame(frame.kind, frame.subject, frame.number, pieces))


def read(reader: FrameReader, data: bytes, cuts: list[int]) -> list[PeerFrame]:
    found: list[PeerFrame] = []
    while data:
        space = reader.space()
        count = min(len(space), len(data), cuts[0])
        cuts.append(cuts.pop(0))
        space[:count] = data[:count]
        del space
        found += reader.filled(count)
        data = data[count:]
    return [frame._replace(body=bytes(frame.body)) for frame in found]


@given(st.lists(st.one_of(frames, st.none()), max_size=6), st.lists(st.integers(1, 40_000), min_size=1, max_size=4))
def test_frames_come_out_as_they_went_in(sent: list[PeerFrame | None], cuts: list[int]) -> None:
    data = b"".join(ALIVE if frame is None else encoded(frame) for frame in sent)
    if len(data) > 5_000:
        cuts = [cut + 500 for cut in cuts]
    assert read(FrameReader(LARGEST), data, cuts) == [frame for frame in sent if frame is not None]


def test_the_largest_and_one_byte_more() -> None:
    frame = PeerFrame(PeerKind.REQUEST, Subject.REPLICAS, 1, bytes(LARGEST))
    assert read(FrameReader(LARGEST), encoded(frame), [1 << 20]) == [frame]
    with pytest.raises(RequestInvalid, match="a frame of 100001 bytes, and 100000 are the most there may be"):
        read(FrameReader(LARGEST), encoded(frame._replace(body=bytes(LARGEST + 1))), [1 << 20])


@pytest.mark.parametrize(
    "header",
    [
        (0, 0, 1, 0), (0, 9, 1, 1), (0, 1, 0, 0), (0, 2, 99, 1), (1, 4, 0, 0), (0, 4, 1, 0), (0, 4, 0, 1), (0, 1, 1, 7),
        (0, 2, 1, 0), (0, 3, 1, 0),
    ],
)  # fmt: skip
def test_what_is_no_frame(header: tuple[int, int, int, int]) -> None:
    with pytest.raises(RequestInvalid, match="a frame of"):
        read(FrameReader(LARGEST), struct.pack(">IBBI", *header), [100])


@given(st.binary(max_size=3000), st.integers(1, 700))
def test_any_bytes_are_read_or_refused(data: bytes, cut: int) -> None:
    try:
        found = read(FrameReader(LARGEST), data, [cut])
    except RequestInvalid:
        return
    assert sum(HEADER_BYTES + len(frame.body) for frame in found) <= len(data)


def test_answers_find_who_asked() -> None:
    calls = PendingCalls()
    heard: list[object] = []
    first, second = (calls.begin(Subject.REPLICAS, heard.append) for _ in range(2))
    assert (first, second, len(calls)) == (1, 2, 2)
    calls.end(Subject.REPLICAS, 2, b"two")
    with pytest.raises(RequestInvalid, match="an answer with the number 2 about REPLICAS, which was not requested"):
        calls.end(Subject.REPLICAS, 2, b"two")
    calls.drop()
    calls.drop()
    assert heard == [b"two", None]
    assert len(calls) == 0


def test_an_answer_about_something_else_is_none() -> None:
    calls = PendingCalls()
    number = calls.begin(Subject.REPLICAS, print)
    assert number is not None
    with pytest.raises(RequestInvalid, match="about CONTROLLER, which was not requested"):
        calls.end(Subject.CONTROLLER, number, b"")


def test_so_many_may_wait_and_no_more() -> None:
    calls = PendingCalls()
    numbers = [calls.begin(Subject.REPLICAS, lambda _: None) for _ in range(10_000)]
    assert numbers == list(range(1, 10_001))
    assert calls.begin(Subject.REPLICAS, lambda _: None) is None
    calls.end(Subject.REPLICAS, 7, b"")
    assert calls.begin(Subject.REPLICAS, lambda _: None) == 10_001


def test_numbers_begin_anew_and_leave_out_those_that_wait() -> None:
    calls = PendingCalls(largest=3)
    assert [calls.begin(Subject.REPLICAS, lambda _: None) for _ in range(3)] == [1, 2, 3]
    calls.end(Subject.REPLICAS, 2, b"")
    assert calls.begin(Subject.REPLICAS, lambda _: None) == 2
