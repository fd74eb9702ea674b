"""A cluster that code before feature level 2 wrote: rolled to the present code, back, and upgraded for good."""

import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from duramen.base.errors import ServerUnreachable
from duramen.metadata.features import LATEST_LEVEL
from duramen.node.process import NodeProcess
from tests.cli.command import run
from tests.golden.cluster import ARCHIVE, CONTENT, COUNT, GROUP, IDS, STREAM, TRANSACTIONAL_ID, node, started

KEPT: Final = Path(__file__).parent / "level1"
OLD_COMMIT: Final = "094d5b0552a6"
REPOSITORY: Final = Path(__file__).parents[2]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with tarfile.open(KEPT / ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.fixture
def old_source(tmp_path: Path) -> Path:
    """The code that wrote the directories, from the history."""
    git = shutil.which("git")
    if git is None:
        pytest.skip("there is no git here")
    found = subprocess.run([git, "-C", str(REPOSITORY), "archive", OLD_COMMIT, "src"], check=False, capture_output=True)
    if found.returncode:
        pytest.skip(f"commit {OLD_COMMIT} is not in the history here")
    with tarfile.open(fileobj=io.BytesIO(found.stdout)) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "src"


class Cluster:
    """The three nodes, each with the code that it runs now."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.nodes: dict[int, NodeProcess] = {}

    def start(self, source: Path | None) -> None:
        self.nodes = {node_id: node(self._root, node_id, source) for node_id in IDS}
        started(list(self.nodes.values()))

    def roll(self, source: Path | None) -> None:
        """Restart each node with other code, one after the other, while clients write."""
        for node_id in IDS:
            assert self.nodes[node_id].stop() == 0
            self.nodes[node_id] = node(self._root, node_id, source).start()
            self.check(writes=1)

    @property
    def servers(self) -> str:
        return ",".join(one.kafka for one in self.nodes.values())

    def check(self, writes: int = 0) -> None:
        """All records are there, those of transactions by their fate, and what groups committed."""
        producer = Producer({"bootstrap.servers": self.servers})
        for _ in range(writes):
            producer.produce(STREAM, b"while it rolls", partition=1)
        assert producer.flush(60) == 0
        client = AdminClient({"bootstrap.servers": self.servers})
        assert client.list_topics(timeout=60).cluster_id == json.loads((KEPT / CONTENT).read_text())["cluster_id"]
        consumer = Consumer({
            "bootstrap.servers": self.servers, "group.id": GROUP, "isolation.level": "read_committed",
            "enable.auto.commit": False,
        })  # fmt: skip
        (committed,) = consumer.committed([TopicPartition(STREAM, 1)], 60)
        assert committed.offset == 17
        consumer.assign([TopicPartition(STREAM, number, 0) for number in (0, 1)])
        found: list[str] = []
        while len(found) < COUNT + 1:
            found += [
                (message.value() or b"").decode() for message in consumer.consume(100, 1)
                if not message.error() and message.value() != b"while it rolls"
            ]  # fmt: skip
        consumer.close()
        assert sorted(found) == sorted([*map(str, range(COUNT)), "commit_transaction"])

    def level(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.duramen("cluster", "upgrade", "--dry-run", "--format", "json"))
        return said

    def duramen(self, *words: str) -> str:
        ended = run(*words, "--server", self.nodes[1].http)
        assert ended.code == 0, ended.err
        return ended.out


@pytest.fixture
def cluster(root: Path) -> Iterator[Cluster]:
    made = Cluster(root)
    yield made
    for one in made.nodes.values():
        one.kill()


@pytest.mark.long
def test_the_present_code_opens_it_and_keeps_its_level(cluster: Cluster) -> None:
    cluster.start(None)
    cluster.check()
    found = cluster.level()
    assert (found["level"], found["highest_level"], found["older_nodes"]) == (1, LATEST_LEVEL, [])
    assert STREAM in [change["stream"] for change in found["changes"]]
    # Who has the open transaction's id goes on; the transaction itself was aborted when its time was over.
    producer = Producer({"bootstrap.servers": cluster.servers, "transactional.id": TRANSACTIONAL_ID + "-open"})
    producer.init_transactions(60)


@pytest.mark.long
def test_a_rolling_upgrade_can_be_taken_back_until_the_level_is_raised(cluster: Cluster, old_source: Path) -> None:
    cluster.start(old_source)
    cluster.check()
    cluster.roll(None)
    assert cluster.level()["level"] == 1
    cluster.roll(old_source)
    cluster.roll(None)
    assert cluster.level()["older_nodes"] == []
    cluster.duramen("cluster", "upgrade", "--yes")
    assert cluster.level()["level"] == LATEST_LEVEL
    cluster.check(writes=1)
    assert cluster.nodes[3].stop() == 0
    old = cluster.nodes[3] = node(cluster.nodes[3].data_dir.parent, 3, old_source)
    refusal = f"knows the feature levels 1 to 1; that of the cluster is {LATEST_LEVEL}"
    with pytest.raises(ServerUnreachable, match=refusal):
        old.start(30)
    cluster.nodes[3] = node(old.data_dir.parent, 3).start()
    cluster.check(writes=1)
