"""Test your own code against a real node, in a temporary directory and on free ports.

pytest examples/test_with_node.py
"""

from collections.abc import Iterator

import pytest

import duramen


@pytest.fixture(scope="session")
def client() -> Iterator[duramen.Client]:
    """One node for all tests; each uses streams of its own."""
    with duramen.testing.node() as node, duramen.connect(node.server) as client:
        yield client


def test_a_key_keeps_its_partition(client: duramen.Client) -> None:
    client.streams.create("keys", partitions=3)
    places = client.produce("keys", [duramen.NewRecord(f"{number}", key="same") for number in range(10)])
    assert {place.partition for place in places} == {places[0].partition}
    [batch] = client.consume("keys")
    assert [record.text for record in batch] == [f"{number}" for number in range(10)]
