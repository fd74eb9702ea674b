"""A cluster of three nodes that the code at a commit wrote: `python -m tests.golden.cluster DIRECTORY SOURCE` makes it.

SOURCE is `src` of a checkout. The addresses are kept in the directories, so they are ones that hardly anybody has.
"""

import json
import shutil
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from duramen.node.process import NodeProcess

__all__ = ["ARCHIVE", "COUNT", "GROUP", "IDS", "STREAM", "TRANSACTIONAL_ID", "node"]

ARCHIVE: Final = "cluster.tar.gz"
CONTENT: Final = "cluster.json"
STREAM: Final = "orders"
GROUP: Final = "golden-group"
TRANSACTIONAL_ID: Final = "golden-transaction"
COUNT: Final = 300
IDS: Final = (1, 2, 3)
_EVERYWHERE: Final = {
    "wal.file.bytes": 1 << 20, "wal.max.bytes": 8 << 20, "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1, "offsets.retention.minutes": 1 << 22, "num.partitions": 2,
    "cluster.seeds": ",".join(f"127.83.12.{number}:7400" for number in IDS), "group.initial.rebalance.delay.ms": 0,
    "transactional.id.expiration.ms": (1 << 31) - 1,
}  # fmt: skip
_OLD: Final = "import sys; sys.path.insert(0, {source!r}); from duramen.cli.main import main; sys.exit(main())"


def node(root: Path, node_id: int, source: Path | None = None) -> NodeProcess:
    """Node `node_id` of the cluster in `root`, with the code in `source` or with this one's."""
    secret = root / "secret"
    if not secret.exists():
        secret.write_text("of a golden cluster, and of nothing else\n")
        secret.chmod(0o600)
    settings = {
        **_EVERYWHERE, "node.id": node_id, "cluster.listen": f"127.83.12.{node_id}:7400",
        "cluster.secret.file": secret,
    }  # fmt: skip
    program = ("-m", "duramen") if source is None else ("-c", _OLD.format(source=str(source)))
    return NodeProcess(root / f"node{node_id}", settings, program)


def started(nodes: list[NodeProcess]) -> None:
    """Start all of them at once: none is ready before there is a quorum."""
    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(NodeProcess.start, nodes))


def fill(nodes: list[NodeProcess]) -> None:
    """A stream with records, a group, an aborted, a committed and an open transaction."""
    servers = ",".join(one.kafka for one in nodes)
    new = NewTopic(STREAM, 2, 3, config={"retention.ms": "-1"})
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([new])[STREAM].result(60)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(COUNT):
        producer.produce(STREAM, str(number).encode(), partition=number % 2)
    if producer.flush(60):
        raise AssertionError("not all records were taken")
    for end in ("abort_transaction", "commit_transaction", ""):
        transactional = Producer({
            "bootstrap.servers": servers, "transactional.id": f"{TRANSACTIONAL_ID}{'' if end else '-open'}",
        })  # fmt: skip
        transactional.init_transactions(60)
        transactional.begin_transaction()
        transactional.produce(STREAM, (end or "open").encode(), partition=0)
        if transactional.flush(60):
            raise AssertionError("a record of a transaction was not taken")
        if end:
            getattr(transactional, end)(60)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(STREAM, 1, 17)], asynchronous=False)
    consumer.close()


def main(directory: Path, source: Path) -> None:
    """Make both files."""
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        nodes = [node(root, node_id, source) for node_id in IDS]
        try:
            started(nodes)
            fill(nodes)
            admin = AdminClient({"bootstrap.servers": nodes[0].kafka})
            content: dict[str, Any] = {"cluster_id": admin.list_topics(timeout=30).cluster_id}
        finally:
            for one in nodes:
                one.kill()  # with the transaction open, and with what only the write-ahead log has
        for one in nodes:
            for derived in ("views", "run"):
                shutil.rmtree(one.data_dir / derived, ignore_errors=True)
        directory.mkdir(parents=True, exist_ok=True)
        with tarfile.open(directory / ARCHIVE, "w:gz", compresslevel=9) as archive:
            for one in nodes:
                archive.add(one.data_dir, one.data_dir.name)
    (directory / CONTENT).write_text(json.dumps(content) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
