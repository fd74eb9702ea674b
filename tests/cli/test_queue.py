"""`duramen queue`, as a user runs it."""

import json

from tests.cli.command import run

from duramen.node.process import NodeProcess


def test_a_space_is_made_shown_and_deleted(node: NodeProcess, stream_name: str) -> None:
    space = ("queue", "space")
    made = run(
        *space, "create", stream_name, "--shards", "3", "--config", "queue.log.retention.ms=2h", server=node.http
    )
    assert made.out == f"Queue space {stream_name} created: 3 shards.\n"
    assert f"{stream_name} " in run(*space, "list", server=node.http).out
    described = run(*space, "describe", stream_name, server=node.http)
    assert f"Queue space {stream_name}: 3 shards" in described.out
    assert "queue.log.retention.ms=7200000" in described.out
    refused = run("stream", "add-partitions", stream_name, "5", server=node.http)
    assert (refused.code, "the number of its shards stays 3" in refused.err) == (1, True)
    bound = run("stream", "create", f"{stream_name}-b", "--config", "kind=queues", "--subject", "a.b", server=node.http)
    assert (bound.code, "takes no NATS subjects" in bound.err) == (1, True)
    assert run(*space, "delete", stream_name, "--yes", server=node.http).code == 0
    assert run(*space, "describe", stream_name, server=node.http).code == 1


def test_entries_are_put_read_edited_leased_and_acknowledged(node: NodeProcess, stream_name: str) -> None:
    def queue(what: str, *more: str, code: int = 0) -> str:
        done = run("queue", what, stream_name, *more, server=node.http)
        assert done.code == code, done.err
        return done.out

    run("queue", "space", "create", stream_name, "--shards", "2", server=node.http)
    first, second = queue("put", "ann", "one", "two", "--request-id", "a").split()
    assert queue("put", "ann", "one", "two", "--request-id", "a").split() == [first, second]
    assert queue("peek", "ann", "--limit", "1") == f"{first}  one\n"
    assert queue("edit", "ann", first, "1").startswith(f"{first} has version ")
    leased = json.loads(queue("lease", "ann", "--for", "1m", "--format", "json"))
    assert (leased["value"], leased["deliveries"]) == ("1", 1)
    for _ in range(2):
        queue("nack", "ann", first, leased["lease"], "--request-id", "b")
    assert queue("get", "ann") == f"{first}  1\n"
    again = run("queue", "ack", stream_name, "ann", first, leased["lease"], server=node.http)
    assert (again.code, "no entry" in again.err) == (1, True)
    long = run("queue", "lease", stream_name, "ann", "--for", "13h", server=node.http)
    assert (long.code, "'--for': 13h is not in the range from 1ms to 12h" in long.err) == (2, True)
    queue("delete", "ann", second)
    queue("get", "ann", code=1)
    [third] = queue("put", "ann", "3").split()
    [fourth] = queue("replace", "ann", third, "three", "--by", "Eve").split()
    assert fourth != third
    queue("replace", "ann", fourth, code=2)  # nobody is there to confirm it
    assert queue("peek", "ann") == f"{fourth}  three\n"
    assert queue("replace", "ann", fourth, "--yes") == ""
    assert queue("peek", "ann") == ""
    queue("put", "ann", "4")
    assert "1 entry" in queue("stats", "ann")
    lines = b"caf\xc3\xa9\xe2\x80\xa8\n\xff\xfe\n"
    assert run("queue", "put", stream_name, "bytes", stdin=lines, server=node.http).code == 0
    shown = [line.partition("  ")[2] for line in queue("peek", "bytes", "--limit", "9").split("\n")]
    assert shown == ["caf\xe9\u2028", "base64://4=", ""]
    queue("drop", "bytes", "--yes")
    assert queue("stats").startswith(f"Queue space {stream_name}: 1 entry (65 bytes)\nSHARD  ENTRIES  BYTES\n")
    assert json.loads(queue("stats", "--format", "json"))["max_entries"] is None
    assert queue("list", "--prefix", "a") == "ann\n"
    queue("purge", "ann", "--yes")
    assert queue("peek", "ann") == ""
    queue("drop", "ann", "--yes")
    assert queue("list") == ""
