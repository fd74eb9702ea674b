"""Bodies of requests as they were before their `Content-Encoding`: gzip is decoded piece by piece, others are refused.

https://www.rfc-editor.org/rfc/rfc9110#section-8.4
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Final

from starlette.requests import Request

from duramen.base.errors import BodyTypeUnsupported, RequestInvalid

__all__ = ["pieces_of"]

_GZIP: Final = ("gzip", "x-gzip")
_GZIP_BITS: Final = 16 + zlib.MAX_WBITS
_AT_ONCE_BYTES: Final = 64 << 10  # decoded, before others get their turn


def pieces_of(request: Request) -> AsyncIterator[bytes]:
    """The decoded body as it arrives; a small compressed body may have any number of bytes.

    Raises BodyTypeUnsupported, and RequestInvalid while it is read.
    """
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding in _GZIP:
        return _gunzipped(request)
    if encoding not in ("", "identity"):
        raise BodyTypeUnsupported(f"a body is sent as it is, or with Content-Encoding gzip, not {encoding[:40]}")
    return aiter(request.stream())


async def _gunzipped(request: Request) -> AsyncIterator[bytes]:
    decoder = _Gunzip()
    async for chunk in request.stream():
        for piece in decoder.take(chunk):
            yield piece
            await asyncio.sleep(0)
    decoder.end()


class _Gunzip:
    """Decodes the members of a gzip file, which follow each other."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP_BITS)
        self._is_whole = True

    def take(self, content: bytes) -> Iterator[bytes]:
        """Decode content, in pieces of a bounded size. Raises RequestInvalid."""
        full = False
        while content or full:
            try:
                piece = self._member.decompress(content, _AT_ONCE_BYTES)
            except zlib.error as error:
                raise RequestInvalid(f"the body is not gzip, as its Content-Encoding says: {error}") from None
            content, full, self._is_whole = self._member.unconsumed_tail, len(piece) == _AT_ONCE_BYTES, False
            if self._member.eof:
                content, full, self._is_whole = self._member.unused_data, False, True
                self._member = zlib.decompressobj(_GZIP_BITS)
            if piece:
                yield piece

    def end(self) -> None:
        """Raise RequestInvalid if a member is not complete."""
        if not self._is_whole:
            raise RequestInvalid("the gzip data of the body ends too early")
