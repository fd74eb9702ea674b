"""Names packed in blocks: the native package packs and finds what plain Python does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import BatchCorrupt
from duramen.base.native import is_installed
from duramen.inventory.packing import (
    NAMES_OF_A_BLOCK,
    SortedNames,
    find_name,
    find_names,
    pack_names,
    plain_find_name,
    plain_sort_names,
    plain_unpack_names,
    sort_names,
    unpack_names,
)

NAMES = st.lists(st.text(st.characters(codec="ascii", min_codepoint=32), max_size=125) | st.text(max_size=5))


def unpacked(found: SortedNames) -> object:
    blocks = [
        [(block.first, block.last, block.size, plain_unpack_names(block.body)) for block in some]
        for some in found.blocks
    ]
    return found.total, blocks, [problem.name for problem in found.problems]


@given(NAMES, st.integers(0, (1 << 32) - 1), st.integers(1, 5))
def test_names_are_sorted_the_same_with_and_without_the_native_package(
    names: list[str], namespace: int, shards: int
) -> None:
    assert unpacked(sort_names(names, namespace, shards)) == unpacked(plain_sort_names(names, namespace, shards))


def test_blocks_are_small_and_each_of_their_names_is_found() -> None:
    names = [f"device-{number * 7919 % 5000:04}" for number in range(5000)]
    found = sort_names([*names, *names[:100]], 3, 4)
    assert found.total == sum(block.size for some in found.blocks for block in some) == 5000
    for block in found.blocks[2]:
        inside = unpack_names(block.body)
        assert (inside[0], inside[-1], len(inside)) == (block.first, block.last, block.size)
        assert block.size <= NAMES_OF_A_BLOCK
        assert [find_name(block.body, name) for name in inside] == [*range(block.size)]
        assert [plain_find_name(block.body, name) for name in inside] == [*range(block.size)]
        assert find_names([block.body] * (block.size + 1), [*inside, b"device"]) == [*range(block.size), None]
        assert find_name(block.body, b"device") is plain_find_name(block.body, b"device-") is None


@pytest.mark.parametrize("unpack", [unpack_names, plain_unpack_names])
def test_names_of_every_number_are_unpacked(unpack: object) -> None:
    for count in (1, 3, 4, 1000):
        names = [b"%04d" % number for number in range(count)]
        assert callable(unpack)
        assert unpack(pack_names(names)) == names


@pytest.mark.skipif(not is_installed(), reason="the native package is not installed")
def test_damaged_blocks_are_refused() -> None:
    body = pack_names([b"device-%03d" % number for number in range(100)])
    for read in (unpack_names, lambda damaged: find_name(damaged, b"device-001")):
        for damaged in (body[:-1], body[:10], b"\x01", b"\x05" + body[1:]):
            with pytest.raises(BatchCorrupt):
                read(damaged)
