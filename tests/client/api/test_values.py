"""What a node says, as values: what it says of damage, and what it does not say."""

import msgspec

from duramen.client.api.values import DamagedRange, PartitionInfo

_SOUND = {
    "partition": 0, "leader_epoch": 1, "start_offset": 0, "high_watermark": 9, "end_offset": 9, "bytes": 90,
    "segments": 1,
}  # fmt: skip


def test_what_is_damaged_of_a_partition_is_told() -> None:
    lost = {"first_offset": 3, "last_offset": None, "file": "7.log", "first_byte": 10, "end_byte": 20, "cause": "crc"}
    found = msgspec.convert(_SOUND | {"damaged": [lost]}, PartitionInfo)
    assert found.damaged == [DamagedRange(3, None, "7.log", 10, 20, "crc")]


def test_an_older_node_says_nothing_of_damage() -> None:
    assert msgspec.convert(_SOUND, PartitionInfo).damaged == []
