"""`duramen log`."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.command import Run

from duramen.node.process import NodeProcess


def test_log_dump(new_node: Callable[..., NodeProcess], duramen_alone: Run, tmp_path: Path) -> None:
    node = new_node().start()
    assert duramen_alone("stream", "create", "s", server=node.http).code == 0
    assert duramen_alone("produce", "s", "--key-separator", "=", stdin=b"k=v\nk2=v2\n", server=node.http).code == 0
    node.stop()
    (segment,) = [path for path in (tmp_path / "data" / "logs").rglob("*.log") if b"k2" in path.read_bytes()]
    dumped = duramen_alone("log", "dump", str(segment), "--records")
    assert dumped.code == 0
    assert " position 0 " in dumped.out
    assert "key 'k2' value 'v2'" in dumped.out
    (batch,) = [
        json.loads(line) for line in duramen_alone("log", "dump", str(segment), "--format", "json").out.splitlines()
    ]
    assert (batch["position"], batch["record_count"], batch["codec"], batch["problem"]) == (0, 2, "none", None)
    whole = json.loads(duramen_alone("log", "dump", str(segment), "--records", "--format", "json").out)
    second = {"offset": 1, "timestamp": batch["max_timestamp"], "key": "k2", "value": "v2", "headers": []}
    assert (whole["records"][1], len(whole["records"])) == (second, 2)
    compacted = segment.rename(segment.with_name(f"{segment.stem}.2.log"))
    assert duramen_alone("log", "dump", str(compacted), "--records").out == dumped.out
    compacted.rename(segment)
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    segment.write_bytes(content)
    damaged = duramen_alone("log", "dump", str(segment))
    assert (damaged.code, "does not match its CRC; " in damaged.err) == (1, True)
    assert damaged.err.endswith("serves what lies around the damage [segment-unreadable]\n")
    problem = json.loads(duramen_alone("log", "dump", str(segment), "--format", "json").out)["problem"]
    assert problem == "the batch does not match its CRC"
    segment.write_bytes(content[:-5])
    assert "the batch is cut off" in duramen_alone("log", "dump", str(segment)).err
    segment.write_bytes(b"\xff" * 100)
    assert "no record batch begins here" in duramen_alone("log", "dump", str(segment)).err
    for path, said in ((tmp_path / "nothing.txt", "is not a segment"), (tmp_path / "00.log", "cannot be read")):
        ended = duramen_alone("log", "dump", str(path))
        assert (ended.code, said in ended.err) == (1, True)
