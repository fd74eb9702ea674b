"""Compression against the libraries that Kafka clients use, bombs, and bytes nobody compressed."""

import contextlib
import gzip
import tracemalloc
from collections.abc import Callable, Mapping

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.untyped import untyped

from duramen.base.errors import BatchCorrupt
from duramen.codec.compression import CODECS, compress, decompress

LIMIT_BYTES = 1 << 20
NUMBERS = range(1, len(CODECS))

aiokafka = untyped("aiokafka.codec")

CONTENT = st.one_of(st.binary(max_size=300), st.integers(1, 200_000).map(lambda size: b"abcdefgh" * (size // 8)))


@pytest.mark.parametrize("codec", NUMBERS, ids=CODECS[1:])
@given(content=CONTENT)
def test_round_trip(codec: int, content: bytes) -> None:
    assert decompress(codec, compress(codec, content), LIMIT_BYTES) == content


@pytest.mark.parametrize("codec", NUMBERS, ids=CODECS[1:])
@given(content=CONTENT.filter(bool))
def test_both_ways_with_aiokafka(codec: int, content: bytes) -> None:
    name = CODECS[codec]
    encode, decode = getattr(aiokafka, f"{name}_encode"), getattr(aiokafka, f"{name}_decode")
    assert decompress(codec, encode(content), LIMIT_BYTES) == content
    assert bytes(decode(compress(codec, content))) == content


@given(st.lists(CONTENT, min_size=1, max_size=4))
def test_gzip_in_several_members(parts: list[bytes]) -> None:
    assert decompress(1, b"".join(map(gzip.compress, parts)), 1 << 22) == b"".join(parts)


@given(CONTENT)
def test_raw_snappy_as_librdkafka_writes_it(content: bytes) -> None:
    assert decompress(2, bytes(cramjam.snappy.compress_raw(content)), LIMIT_BYTES) == content


@pytest.mark.parametrize("codec", NUMBERS, ids=CODECS[1:])
def test_exactly_the_limit_is_allowed_and_a_byte_more_is_not(codec: int) -> None:
    compressed = compress(codec, bytes(LIMIT_BYTES))
    assert len(decompress(codec, compressed, LIMIT_BYTES)) == LIMIT_BYTES
    with pytest.raises(BatchCorrupt, match="more than"):
        decompress(codec, compressed, LIMIT_BYTES - 1)


BOMBS: Mapping[str, tuple[int, Callable[[], bytes]]] = {
    "gzip": (1, lambda: gzip.compress(bytes(256 << 20), 1)),
    "snappy": (2, lambda: b"\xff\xff\xff\xff\x0f" + bytes(100)),
    "snappy in frames": (2, lambda: compress(2, bytes(64 << 20))),
    "lz4": (3, lambda: bytes(cramjam.lz4.compress(bytes(256 << 20)))),
    "zstd": (4, lambda: bytes(cramjam.zstd.compress(bytes(256 << 20)))),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_within_the_limit(name: str) -> None:
    codec, made = BOMBS[name]
    bomb = made()
    tracemalloc.start()
    with pytest.raises(BatchCorrupt):
        decompress(codec, bomb, LIMIT_BYTES)
    assert tracemalloc.get_traced_memory()[1] < 4 * LIMIT_BYTES
    tracemalloc.stop()


@pytest.mark.parametrize("codec", range(8))
@given(data=st.binary(max_size=200))
def test_arbitrary_bytes(codec: int, data: bytes) -> None:
    with contextlib.suppress(BatchCorrupt):
        assert len(decompress(codec, data, LIMIT_BYTES)) <= LIMIT_BYTES


@pytest.mark.parametrize("codec", NUMBERS, ids=CODECS[1:])
@given(content=CONTENT, place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255), cut=st.floats(0, 1))
def test_damaged_and_cut_off(codec: int, content: bytes, place: float, flip: int, cut: float) -> None:
    damaged = bytearray(compress(codec, content))
    damaged[int(place * len(damaged))] ^= flip
    for data in (bytes(damaged), compress(codec, content)[: int(cut * len(damaged))]):
        with contextlib.suppress(BatchCorrupt):
            assert len(decompress(codec, data, LIMIT_BYTES)) <= LIMIT_BYTES
