"""Records of `__share_group_state`: round trips, their bytes, what updates add up to, and hostile bytes."""

import contextlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import BatchCorrupt
from duramen.delivery.spans import DeliveryPhase
from duramen.delivery.window import State
from duramen.groups.share_records import (
    ShareKey,
    ShareState,
    ShareUpdate,
    decode_key,
    decode_snapshot,
    decode_update,
    encode_key,
    encode_snapshot,
    encode_update,
    merged,
    state_partition_for,
)

INT32 = st.integers(0, (1 << 31) - 1)
INT64 = st.integers(0, (1 << 62))
KEYS = st.builds(ShareKey, st.text(st.characters(exclude_categories=["Cs"]), max_size=12), st.uuids(), INT32)
PHASES = st.sampled_from([DeliveryPhase.AVAILABLE, DeliveryPhase.ACKNOWLEDGED, DeliveryPhase.ARCHIVED])
STATES = st.lists(
    st.builds(
        lambda first, size, phase, count: State(first, first + size, phase, count),
        st.integers(0, 40), st.integers(0, 9), PHASES, st.integers(0, 9),
    ),
    max_size=5,
).map(tuple)  # fmt: skip
SNAPSHOTS = st.builds(ShareState, st.integers(-1, 50), STATES, INT32, INT32, INT32, INT64, INT64)
UPDATES = st.builds(ShareUpdate, st.integers(-1, 50), STATES, st.just(7), INT32)


@given(KEYS, st.booleans())
def test_keys_come_back(key: ShareKey, update: bool) -> None:
    assert decode_key(encode_key(key, update=update)) == (key, update)


@given(SNAPSHOTS)
def test_snapshots_come_back(state: ShareState) -> None:
    assert decode_snapshot(encode_snapshot(state)) == state


@given(UPDATES)
def test_updates_come_back(update: ShareUpdate) -> None:
    assert decode_update(encode_update(update)) == update


def test_the_bytes_are_kafkas() -> None:
    key = ShareKey("g", UUID(int=5), 3)
    assert encode_key(key) == b"\0\0\0\x01g" + bytes(15) + b"\x05\0\0\0\x03"
    assert encode_key(key, update=True)[:2] == b"\0\x01"
    update = ShareUpdate(4, (State(4, 6, DeliveryPhase.ACKNOWLEDGED, 1),), 2, 1)
    batch = (4).to_bytes(8, "big") + (6).to_bytes(8, "big") + b"\x02\0\x01" + b"\0"
    assert encode_update(update) == b"\0\0\0\0\0\x02\0\0\0\x01" + (4).to_bytes(8, "big") + b"\x02" + batch + b"\0"


@given(SNAPSHOTS.map(lambda state: state._replace(snapshot_epoch=7)), st.lists(UPDATES, max_size=4))
def test_updates_are_laid_over_the_snapshot(snapshot: ShareState, updates: list[ShareUpdate]) -> None:
    wanted: dict[int, tuple[DeliveryPhase, int]] = {}
    for states in (snapshot.states, *(update.states for update in updates)):
        for first, last, phase, count in states:
            wanted.update(dict.fromkeys(range(first, last + 1), (phase, count)))
    found = merged(snapshot, updates)
    assert found.start_offset == max([snapshot.start_offset, *(update.start_offset for update in updates)])
    spread = {at: state[2:] for state in found.states for at in range(state.first, state.last + 1)}
    assert spread == {
        at: said for at, said in wanted.items() if at >= found.start_offset and said != (DeliveryPhase.AVAILABLE, 0)
    }


def test_updates_of_another_snapshot_do_not_count() -> None:
    snapshot = ShareState(5, (), 2)
    assert merged(snapshot, [ShareUpdate(9, (State(9, 9, DeliveryPhase.ARCHIVED, 0),), 1, 0)]) == snapshot


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_something_or_damaged(data: bytes) -> None:
    for decode in (decode_key, decode_snapshot, decode_update):
        with contextlib.suppress(BatchCorrupt):
            decode(data)
        with contextlib.suppress(BatchCorrupt):
            decode(b"\0\0" + data)


def test_what_is_damaged_is_said() -> None:
    assert decode_key(b"\0\x09\0\0") is None
    with pytest.raises(BatchCorrupt, match="key"):
        decode_key(b"\0\0\0\x05g")
    with pytest.raises(BatchCorrupt, match="version"):
        decode_snapshot(b"\0\x01")
    acquired = encode_update(ShareUpdate(0, (State(1, 2, DeliveryPhase.ACQUIRED, 1),), 0, 0))
    with pytest.raises(BatchCorrupt, match="impossible"):
        decode_update(acquired)


def test_a_share_partition_keeps_its_place() -> None:
    keys = [ShareKey("g", UUID(int=index), index) for index in range(100)]
    places = [state_partition_for(key, 50) for key in keys]
    assert places == [state_partition_for(key, 50) for key in keys]
    assert len(set(places)) > 20
