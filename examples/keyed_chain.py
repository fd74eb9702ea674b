"""A keyed stream along a chain of nodes: producers write at A, many readers read whole snapshots at the other nodes.

python examples/keyed_chain.py A:9644 2=B:9644 3=C:9644

A is any node of a cluster; the readers' nodes are given with their ids. The stream has a replica on each node, and each
replica fetches from the one before it (`replication.topology=chain`), so every record crosses each link once.
"""

import sys
from collections.abc import Iterable

import duramen

STREAM = "seats"
READERS = 3  # at each node
State = dict[bytes, str]


def apply(state: State, records: Iterable[duramen.Record]) -> State:
    """The state with these records; those without a value delete their keys."""
    for record in records:
        if record.key is not None:
            state.pop(record.key, None)
            if record.value is not None:
                state[record.key] = record.text
    return state


class Reader:
    """Keeps a state that existed. All that it has to remember is where it is."""

    def __init__(self) -> None:
        self.state: State = {}
        self.at: dict[int, int] = {}

    def follow(self, snapshot: duramen.Snapshot) -> None:
        """Go on to this snapshot: with all of it at first, and then with what changed."""
        apply(self.state, snapshot.changes_since(self.at) if self.at else snapshot)
        self.at = snapshot.at


def main(producer: str, places: list[str]) -> None:
    """Write some seats, and read each of three states at every node."""
    nodes = {int(number): address for number, _, address in (place.partition("=") for place in places)}
    clients = {number: duramen.connect(address) for number, address in nodes.items()}
    readers = {number: [Reader() for _ in range(READERS)] for number in nodes}
    with duramen.connect(producer) as writer:
        config = {"keyed": True, "replication.topology": "chain"}
        writer.streams.create(STREAM, partitions=1, replication_factor=len(nodes) + 1, config=config)
        for round_, passenger in enumerate(("Ann", "Bob", None)):
            # Each seat is updated three times: a reader gets its newest state alone.
            records = [duramen.NewRecord(f"{round_}", key=f"{row}A") for row in range(1, 31) for _ in range(3)]
            written = writer.produce(STREAM, [*records, duramen.NewRecord(passenger, key="7A")])
            at = {place.partition: place.offset + 1 for place in written}
            for number, client in clients.items():
                # The node has the records on its disk: what is read there from now on has them.
                for partition, end in at.items():
                    writer.wait_replicated(STREAM, partition, end - 1, node=number)
                for reader in readers[number]:
                    reader.follow(client.snapshot(STREAM, at=at))
                states = [reader.state for reader in readers[number]]
                assert all(state == states[0] for state in states)
                print(f"node {number}: {len(states[0])} seats as of {at[0]}, 7A: {states[0].get(b'7A', 'free')}")
    for client in clients.values():
        client.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
