"""`duramen queue space`, as a user runs it."""

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
