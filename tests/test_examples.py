"""The examples do what they say."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from duramen.node.process import NodeProcess
from tests.cli.command import run

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name: str, address: str) -> list[str]:
    """The lines that an example prints."""
    words = [sys.executable, str(EXAMPLES / name), address]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.long
def test_orders(new_node: Callable[..., NodeProcess]) -> None:
    node = new_node({"nats.server": "embedded"}).start()
    assert run("stream", "create", "orders", "--subject", "orders.>", server=node.http).code == 0
    published = example("publish_nats.py", f"nats://{node.nats}")
    assert published[0] == "{'stream': 'orders', 'seq': 1, 'partition': 0, 'offset': 0}"
    assert published[5] == "{'stream': 'orders', 'seq': 5, 'partition': 0, 'offset': 4, 'duplicate': True}"
    assert example("consume_kafka.py", node.kafka) == [
        f'{number - 1} orders.berlin {{"order": {number}, "amount": {10 * number}}}' for number in range(1, 6)
    ]
    assert "|  150|" in example("spark_table.py", node.kafka)


def test_the_python_client(new_node: Callable[..., NodeProcess]) -> None:
    node = new_node().start()
    assert example("python_sync.py", node.http) == [
        "3 records stored, the last one at offset 2 of partition 0",
        "1 b'berlin' 21",
        "2 b'berlin' 19",
        "there is no stream reading; client.streams.create('reading') makes one; nothing was stored: to repeat is safe",
    ]
    assert example("python_asyncio.py", node.http) == ["100 records read, 4950 in sum"]


def test_a_broker_in_tests() -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES / "test_with_broker.py")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout
