"""Proves that the output equals the input. Takes the published, acknowledged and read flights.

A consumer may read records again after a crash, so each offset of a partition counts once; its value must be the same
each time.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from duramen.base.errors import DemoFailed
from duramen.demo.digest import FINGERPRINT_BYTES, digest_of
from duramen.demo.member import MemberPartition
from duramen.demo.screen import Screen, plain_table

__all__ = ["PartitionProof", "merge", "prove", "show_proofs"]


class PartitionProof(NamedTuple):
    """One partition: how many flights were acknowledged and how many were read, and the digests of both."""

    partition: int
    acknowledged: int
    read: int
    digest_in: str
    digest_out: str
    read_again: int


class Merged(NamedTuple):
    """What all members together have read of a partition: flight and fingerprint by offset, and how often again."""

    flights: dict[int, tuple[int, bytes]]
    again: int


def merge(partition: int, parts: Iterable[MemberPartition]) -> Merged:
    """Each offset once. Raises DemoFailed where it held one flight at one time and another one at another."""
    flights: dict[int, tuple[int, bytes]] = {}
    again = 0
    for part in parts:
        size = FINGERPRINT_BYTES
        for place, (offset, number) in enumerate(zip(part.offsets, part.numbers, strict=True)):
            read = number, bytes(part.fingerprints[size * place : size * (place + 1)])
            if flights.setdefault(offset, read) != read:
                raise DemoFailed(
                    f"partition {partition}, offset {offset} held one flight before the crash, another after"
                )
        again += len(part.offsets)
    return Merged(flights, again - len(flights))


def prove(
    fingerprints: Sequence[bytes],
    partitions: Sequence[int],
    offsets: Sequence[int],
    members: Sequence[Mapping[int, MemberPartition]],
    count: int,
) -> list[PartitionProof]:
    """The proof for each of `count` partitions. Raises DemoFailed with the first thing that is wrong.

    `fingerprints` are those of the flights as they were read from the data, `partitions` and `offsets` where each
    was acknowledged to be, `members` what each consumer has read.
    """
    proofs = []
    seen: dict[int, tuple[int, int]] = {}
    for partition in range(count):
        merged = merge(partition, [member[partition] for member in members if partition in member])
        for offset, (number, _) in sorted(merged.flights.items()):
            where = seen.setdefault(number, (partition, offset))
            if where != (partition, offset):
                raise DemoFailed(
                    f"flight {number} is there twice: at {_place(*where)} and at {_place(partition, offset)}"
                )
        inside = [number for number, its in enumerate(partitions) if its == partition]
        proofs.append(
            PartitionProof(
                partition,
                len(inside),
                len(merged.flights),
                digest_of(fingerprints[number] for number in inside),
                digest_of(one for _, one in merged.flights.values()),
                merged.again,
            )
        )
    for number, place in enumerate(zip(partitions, offsets, strict=True)):
        if seen.get(number) != place:
            found = f"it is at {_place(*seen[number])}" if number in seen else "it is not there"
            raise DemoFailed(f"flight {number} was acknowledged at {_place(*place)}, and {found}")
    for one in proofs:
        if (one.acknowledged, one.digest_in) != (one.read, one.digest_out):
            raise DemoFailed(
                f"partition {one.partition}: {one.acknowledged} flights with digest {one.digest_in} went in,"
                f" {one.read} with digest {one.digest_out} came out"
            )
    return proofs


def _place(partition: int, offset: int) -> str:
    return f"partition {partition}, offset {offset}"


def show_proofs(screen: Screen, proofs: Iterable[PartitionProof]) -> None:
    """Print the proof of each partition."""
    table = plain_table(
        [("partition", True), ("acknowledged", True), ("read", True), ("digest in", False), ("digest out", False)]
    )
    for one in proofs:
        digests = (f"{one.digest_in[:16]}…", f"{one.digest_out[:16]}…")
        table.add_row(f"{one.partition}", f"{one.acknowledged:,}", f"{one.read:,}", *digests)
    screen.show(table)
    screen.say("every flight is where its acknowledgement says: none missing, none twice")
