"""Frames: found again exactly, whatever was cut, flipped or left over from the file's last generation."""

from hypothesis import given
from hypothesis import strategies as st

from duramen.sim.machine.disk import MemoryFileSystem
from duramen.storage.wal import frames
from duramen.storage.wal.frames import FRAME_HEADER_BYTES, Bad, Frame, FrameType, encode, find_generation

SALT = 77
WINDOWS = (1, 7, 64, 1 << 20)
PAYLOADS = st.lists(st.binary(max_size=60), min_size=1, max_size=8)


def file_of(payloads: list[bytes], generation: int, size: int = 0) -> bytes:
    out = bytearray()
    for number, payload in enumerate(payloads):
        type_ = FrameType.FILE if number == 0 else FrameType.APPEND
        out += encode(type_, number, payload, generation, len(out), number, SALT) + payload
    return bytes(out).ljust(size, b"\0")


def scan(content: bytes, generation: int, salt: int) -> list[Frame | Bad]:
    """What is found, which is the same however much of the file is read at once."""
    files = MemoryFileSystem()
    files.make_directory("")
    file = files.open("wal", create=True)
    file.write([content], 0)
    one, *others = (list(frames.scan(file, generation, salt, window_bytes=size)) for size in WINDOWS)
    assert all(other == one for other in others)
    return one


def sound(content: bytes, generation: int) -> list[bytes]:
    return [bytes(item.payload) for item in scan(content, generation, SALT) if isinstance(item, Frame)]


@given(PAYLOADS, st.integers(1, 2**32 - 1))
def test_frames_are_found_in_order_with_what_they_carry(payloads: list[bytes], generation: int) -> None:
    found = scan(file_of(payloads, generation), generation, SALT)
    assert all(isinstance(item, Frame) for item in found)
    sound_ones = [item for item in found if isinstance(item, Frame)]
    assert [bytes(frame.payload) for frame in sound_ones] == payloads
    assert (
        [frame.log_id for frame in sound_ones] == [frame.vouched for frame in sound_ones] == list(range(len(payloads)))
    )
    assert [frame.end for frame in sound_ones[:-1]] == [frame.place for frame in sound_ones[1:]]
    assert find_generation(file_of(payloads, generation), SALT) == generation


@given(PAYLOADS, st.data())
def test_a_cut_file_has_the_frames_before_the_cut(payloads: list[bytes], data: st.DataObject) -> None:
    content = file_of(payloads, 5)
    cut = data.draw(st.integers(0, len(content)))
    torn = content[:cut].ljust(len(content), b"\0")
    ends = [item.end for item in scan(content, 5, SALT) if isinstance(item, Frame)]
    whole = sum(1 for end in ends if content[:end] == torn[:end])
    assert sound(torn, 5) == payloads[:whole]


@given(PAYLOADS, st.data())
def test_a_flipped_byte_loses_one_frame_and_no_neighbour(payloads: list[bytes], data: st.DataObject) -> None:
    content = bytearray(file_of(payloads, 5))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    hit = next(
        number
        for number, item in enumerate(scan(file_of(payloads, 5), 5, SALT))
        if isinstance(item, Frame) and at < item.end
    )
    assert sound(bytes(content), 5) == payloads[:hit] + payloads[hit + 1 :]
    bad = [item for item in scan(bytes(content), 5, SALT) if isinstance(item, Bad)]
    assert len(bad) == 1
    assert bad[0].place <= at < bad[0].end


@given(PAYLOADS, PAYLOADS)
def test_old_frames_of_a_recycled_file_are_never_taken_for_new(old: list[bytes], new: list[bytes]) -> None:
    recycled = bytearray(file_of(old, 3))
    fresh = file_of(new, 9)
    recycled[: len(fresh)] = fresh
    assert sound(bytes(recycled), 9) == new


@given(PAYLOADS)
def test_another_directory_has_other_frames(payloads: list[bytes]) -> None:
    content = file_of(payloads, 5)
    assert [item for item in scan(content, 5, SALT + 1) if isinstance(item, Frame)] == []
    assert find_generation(content, SALT + 1) is None


def test_a_payload_that_looks_like_a_frame_of_another_place_is_none() -> None:
    # A record may hold the bytes of a frame: after damage the search must not take it for one.
    inner = encode(FrameType.APPEND, 1, b"evil", 5, 0, 0, SALT) + b"evil"
    content = bytearray(file_of([b"head", inner, b"tail"], 5))
    first_append = FRAME_HEADER_BYTES + 4
    content[first_append] ^= 1
    assert sound(bytes(content), 5) == [b"head", b"tail"]


def test_the_unused_rest_of_a_file_is_read_about_once_whatever_it_holds() -> None:
    # Keys of big-endian integers hold the generation in every record, and what follows looks like any size.
    generation = 5
    rest = b"".join(number.to_bytes(8, "big") + generation.to_bytes(4, "big") for number in range(100_000))
    files = MemoryFileSystem()
    files.make_directory("")
    file = files.open("wal", create=True)
    content = file_of([b"head"], generation) + rest
    file.write([content], 0)
    read = 0

    def count(call: str, path: str, size: int) -> int:
        nonlocal read
        read += size if call == "read" and path == "wal" else 0
        return size

    files.interfere = count
    found = list(frames.scan(file, generation, SALT, window_bytes=1 << 16))
    assert [type(item) for item in found] == [Frame, Bad]
    assert 0 < read < 3 * len(content)


@given(st.binary(max_size=300), st.integers(0, 2**32 - 1))
def test_arbitrary_bytes_hold_no_frames_and_raise_nothing(content: bytes, generation: int) -> None:
    assert sound(content, generation) == []
