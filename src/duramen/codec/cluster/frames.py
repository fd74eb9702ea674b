"""Frames between nodes that have proven the secret: bytes to frames and back. Pure.

    uint32 size of the body, uint8 kind, uint8 subject, uint32 number, the body

A response has the number and the subject of its request. A message without a response has the number 0.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from duramen.base.errors import RequestInvalid
from duramen.base.ports import Buffer
from duramen.codec.cluster.channels import Subject

__all__ = ["ALIVE", "HEADER_BYTES", "FrameReader", "PeerFrame", "PeerKind", "encode_frame"]

_HEADER: Final = struct.Struct(">IBBI")
HEADER_BYTES: Final = _HEADER.size

_AHEAD_BYTES: Final = 16 * 1024


class PeerKind(IntEnum):
    """The type of a frame."""

    MESSAGE = 1
    REQUEST = 2
    ANSWER = 3
    ALIVE = 4
    """A heartbeat: the sender is alive."""


class PeerFrame(NamedTuple):
    """A message; the reader no longer owns the body."""

    kind: PeerKind
    subject: Subject
    number: int
    body: Buffer


ALIVE: Final = _HEADER.pack(0, PeerKind.ALIVE, 0, 0)

_KINDS: Final = {int(kind): kind for kind in PeerKind}
_SUBJECTS: Final = {int(subject): subject for subject in Subject}


def encode_frame(kind: PeerKind, subject: Subject, number: int, body: Sequence[Buffer]) -> list[Buffer]:
    """The frame, its body in as many pieces as it was handed in."""
    return [_HEADER.pack(sum(map(len, body)), kind, subject, number), *body]


class FrameReader:
    """Gives the space for received bytes, and takes frames out of it.

    Holds at most one incomplete frame, and few bytes that came after the one before it.
    """

    __slots__ = ("_ahead", "_body", "_filled", "_head", "_held", "_largest_bytes")

    def __init__(self, largest_bytes: int) -> None:
        """`largest_bytes` bounds the body of a frame."""
        self._largest_bytes = largest_bytes
        self._ahead = bytearray(_AHEAD_BYTES)
        self._held = 0  # bytes of `_ahead` that belong to a header which is not whole
        self._head: tuple[PeerKind, Subject, int] | None = None
        self._body = bytearray()
        self._filled = 0

    def space(self) -> memoryview:
        """The buffer for the next bytes; never empty."""
        if self._head is not None:
            return memoryview(self._body)[self._filled :]
        return memoryview(self._ahead)[self._held :]

    def filled(self, count: int) -> list[PeerFrame]:
        """The number of bytes received into `space`: returns the frames that they complete.

        Raises RequestInvalid for invalid or too large frames.
        """
        if self._head is not None:
            self._filled += count
            return self._whole()
        end = self._held + count
        at = 0
        frames: list[PeerFrame] = []
        while end - at >= HEADER_BYTES:
            size, *words = _HEADER.unpack_from(self._ahead, at)
            head = self._checked(size, *words)
            at += HEADER_BYTES
            if head is None:
                continue
            came = min(size, end - at)
            piece = self._ahead[at : at + came]
            at += came
            if came == size:
                frames.append(PeerFrame(*head, piece))
            else:
                self._head, self._filled = head, came
                self._body = bytearray(size)
                self._body[:came] = piece
        self._held = end - at
        self._ahead[: self._held] = self._ahead[at:end]
        return frames

    def _whole(self) -> list[PeerFrame]:
        if self._head is None or self._filled < len(self._body):
            return []
        frame = PeerFrame(*self._head, self._body)
        self._head, self._body, self._filled = None, bytearray(), 0
        return [frame]

    def _checked(self, size: int, kind: int, subject: int, number: int) -> tuple[PeerKind, Subject, int] | None:
        """The header; None if it is empty."""
        if size > self._largest_bytes:
            raise RequestInvalid(f"a frame of {size} bytes, and {self._largest_bytes} are the most there may be")
        if (size, kind, subject, number) == (0, PeerKind.ALIVE, 0, 0):
            return None
        if kind not in _KINDS or kind == PeerKind.ALIVE or subject not in _SUBJECTS:
            raise RequestInvalid(f"a frame of kind {kind} about {subject}, which there is not")
        if (kind == PeerKind.MESSAGE) != (number == 0):
            raise RequestInvalid(f"a frame of kind {kind} with the number {number}")
        return _KINDS[kind], _SUBJECTS[subject], number
