"""`duramen stream`."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.cli.command import Run
from tests.cli.terminal import Terminal
from tests.clients import until

from duramen.node.process import NodeProcess


@pytest.mark.long
def test_create_twice_and_differently(duramen: Run, stream_name: str) -> None:
    wish = ("stream", "create", stream_name, "--partitions", "3", "--config", "retention.ms=1h")
    assert duramen(*wish) == (0, f"Stream {stream_name} created: 3 partitions.\n", "")
    assert duramen(*wish) == (0, f"Stream {stream_name} already exists with this definition: 3 partitions.\n", "")
    same = duramen("stream", "create", stream_name, "--partitions", "3", "--config", "retention.ms=3600000")
    assert same.code == 0
    other = duramen("stream", "create", stream_name, "--partitions", "4", "--config", "retention.ms=2h")
    assert other.code == 1
    assert "it has 3 partitions, not 4; its retention.ms is 3600000, not 2h; " in other.err
    assert other.err.endswith(" [stream-differs]\n")


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("a/b",), "[name-invalid]"),
        (("..",), "[name-invalid]"),
        (("__x",), "__ begins the broker's own [name-invalid]"),
        (("x" * 250,), "[name-invalid]"),
        (("s", "--config", "retention.sm=1"), "did you mean retention.ms? [config-invalid]"),
        (("s", "--config", "retention.ms=soon"), "'soon' does not fit; it must be a time such as 30000 or 30s"),
        (("s", "--subject", "a..b"), "the subject 'a..b' has an empty token; "),
        (("s", "--partitions", "1000000000"), "a stream has 1 to 100000 partitions, not 1000000000"),
    ],
)
def test_create_what_cannot_be(duramen: Run, words: tuple[str, ...], said: str) -> None:
    ended = duramen("stream", "create", *words)
    assert (ended.code, ended.out) == (1, "")
    assert said in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.variants(1)
@pytest.mark.parametrize("words", [(), ("s", "--partitions", "0"), ("s", "--config", "retention"), ("s", "--wrong")])
def test_wrong_usage(duramen: Run, words: tuple[str, ...]) -> None:
    ended = duramen("stream", "create", *words)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("duramen: ")
    assert ended.err.endswith(" see `duramen stream create --help` [usage]\n")
    assert ended.err.count("\n") == 1


@pytest.mark.long
def test_wide_bindings_are_warned_of(duramen: Run, stream_name: str) -> None:
    ended = duramen("stream", "create", stream_name, "--subject", ">")
    assert (ended.code, ended.out) == (0, f"Stream {stream_name} created: 1 partition, bound to >.\n")
    assert "matches requests to other services too" in ended.err
    assert duramen("stream", "create", stream_name + "2", "--subject", ">", "--config", "nats.ack=never").err == ""
    duramen("stream", "delete", "--yes", stream_name, stream_name + "2")


def test_list(duramen: Run, stream_name: str) -> None:
    duramen("stream", "create", stream_name, "--config", "durability=os")
    duramen("produce", stream_name, stdin=b"a\nb\nc\n")
    lines = duramen("stream", "list").out.splitlines()
    assert lines[0].split() == ["STREAM", "PARTITIONS", "RECORDS", "SIZE", "DURABILITY", "SUBJECTS"]
    (mine,) = [line.split() for line in lines if line.split()[0] == stream_name]
    assert mine[1:3] == ["1", "3"]
    assert mine[-1] == "os"
    listed = json.loads(duramen("stream", "list", "--format", "json").out)
    assert stream_name in [stream["name"] for stream in listed]
    assert not any(stream["internal"] for stream in listed)
    everything = json.loads(duramen("stream", "list", "--format", "json", "--internal").out)
    assert stream_name in [stream["name"] for stream in everything]


def test_describe_says_what_durability_means(duramen: Run, stream_name: str) -> None:
    duramen("stream", "create", stream_name, "--partitions", "2", "--subject", "describe.me.>")
    said = duramen("stream", "describe", stream_name).out
    assert "Durability  sync: acknowledged records are on disk" in said
    assert "Subjects    describe.me.>" in said
    assert "No gaps" in said or "Gaps, in which nobody listened" in said
    described = json.loads(duramen("stream", "describe", stream_name, "--format", "json").out)
    assert [part["partition"] for part in described["partitions"]] == [0, 1]


def test_alter(duramen: Run, stream_name: str) -> None:
    duramen("stream", "create", stream_name, "--config", "retention.ms=1h")
    ended = duramen("stream", "alter", stream_name, "--config", "durability=os", "--delete-config", "retention.ms")
    assert ended == (0, f"Stream {stream_name} changed.\n", "")
    described = json.loads(duramen("stream", "describe", stream_name, "--format", "json").out)
    assert described["config"] == {"durability": "os"}
    assert duramen("stream", "alter", stream_name).code == 2


def test_add_partitions(duramen: Run, stream_name: str) -> None:
    duramen("stream", "create", stream_name)
    ended = duramen("stream", "add-partitions", stream_name, "3")
    assert ended == (0, f"Stream {stream_name} now has 3 partitions, 1 before.\n", "")
    again = duramen("stream", "add-partitions", stream_name, "3")
    assert again == (0, f"Stream {stream_name} already has 3 partitions.\n", "")
    fewer = duramen("stream", "add-partitions", stream_name, "1")
    assert (fewer.code, "1 would not be more" in fewer.err, "[partitions-invalid]" in fewer.err) == (1, True, True)


@pytest.mark.long
@pytest.mark.parametrize("command", ["create", "alter"])
def test_a_config_that_is_given_twice(duramen: Run, stream_name: str, command: str) -> None:
    duramen("stream", "create", stream_name, "--config", "retention.ms=1h")
    ended = duramen("stream", command, stream_name, "--config", "retention.ms=1h", "--config", "retention.ms=2h")
    assert (ended.code, ended.out) == (2, "")
    assert "retention.ms is given twice, as '1h' and as '2h'" in ended.err
    same = duramen("stream", command, stream_name, "--config", "retention.ms=1h", "--config", "retention.ms=1h")
    assert same.code == 0


def test_a_config_that_is_set_and_deleted(duramen: Run, stream_name: str) -> None:
    ended = duramen("stream", "alter", stream_name, "--config", "retention.ms=1h", "--delete-config", "retention.ms")
    assert (ended.code, "retention.ms is both set and deleted" in ended.err) == (2, True)


def test_delete(duramen: Run, stream_name: str) -> None:
    duramen("stream", "create", stream_name)
    missing = duramen("stream", "delete", "--yes", stream_name, "no-such-stream")
    assert (missing.code, "there is no stream no-such-stream" in missing.err) == (1, True)
    assert "[stream-not-found]" in missing.err
    assert duramen("stream", "delete", stream_name, "--yes") == (0, f"Stream {stream_name} deleted.\n", "")
    assert duramen("stream", "describe", stream_name).code == 1


def test_delete_asks(node: NodeProcess, duramen: Run, stream_name: str) -> None:
    duramen("stream", "create", stream_name)
    refused = duramen("stream", "delete", stream_name)
    assert (refused.code, refused.out) == (2, "")
    assert "standard input is no terminal; give --yes;" in refused.err
    code, shown = Terminal("stream", "delete", stream_name, server=node.http).answer("Delete", "n\n").end()
    assert (code, "Nothing was done." in shown) == (1, True)
    assert duramen("stream", "describe", stream_name).code == 0
    code, shown = Terminal("stream", "delete", stream_name, server=node.http).interrupt("Delete").end()
    assert (code, "Traceback" in shown) == (130, False)
    code, shown = Terminal("stream", "delete", stream_name, server=node.http).answer("Delete", "y\n").end()
    assert (code, f"Stream {stream_name} deleted." in shown) == (0, True)


def test_for_programs(duramen: Run, stream_name: str) -> None:
    def said(*words: str) -> dict[str, Any]:
        ended = duramen("stream", *words, "--format", "json")
        assert (ended.code, ended.err) == (0, "")
        document: dict[str, Any] = json.loads(ended.out)
        return document

    created = said("create", stream_name, "--subject", f"{stream_name}.>")
    assert (created["name"], created["created"], created["warnings"]) == (stream_name, True, [])
    assert said("alter", stream_name, "--config", "durability=os")["config"] == {"durability": "os"}
    assert len(said("add-partitions", stream_name, "2")["partitions"]) == 2
    assert said("delete", stream_name, "--yes") == {"deleted": stream_name}


@pytest.mark.long
def test_topic_is_another_word_for_stream(duramen: Run, stream_name: str) -> None:
    assert duramen("topic", "create", stream_name).code == 0
    assert duramen("topic", "describe", stream_name).out == duramen("stream", "describe", stream_name).out


@pytest.mark.long
def test_tables_fit_the_terminal(node: NodeProcess, duramen: Run, stream_name: str) -> None:
    subjects = [f"fit.{number}.{'x' * 40}" for number in range(3)]
    duramen("stream", "create", stream_name, *(word for subject in subjects for word in ("--subject", subject)))
    (whole,) = [line for line in duramen("stream", "list").out.splitlines() if line.startswith(stream_name)]
    assert whole.endswith(" ".join(subjects))
    code, shown = Terminal("stream", "list", server=node.http, columns=80).end()
    assert code == 0
    assert "…" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_nobody_there(duramen_alone: Run) -> None:
    ended = duramen_alone("stream", "list", "--server", "127.0.0.1:1")
    assert ended.code == 1
    assert ended.err.startswith("duramen: no node answers at 127.0.0.1:1 (Connection refused); start one with")
    wrong = duramen_alone("stream", "list", "--server", "somewhere")
    assert (wrong.code, "it must be HOST:PORT" in wrong.err) == (2, True)


def test_somebody_else_there(duramen_alone: Run, node: NodeProcess) -> None:
    ended = duramen_alone("stream", "list", server=node.kafka)
    assert ended.code == 1
    assert ended.err.count("\n") == 1


def test_records_are_deleted_up_to_an_offset(duramen: Run, stream_name: str) -> None:
    duramen("stream", "create", stream_name, "--partitions", "2")
    for partition in ("0", "1"):
        assert duramen("produce", stream_name, "--partition", partition, stdin=b"a\nb\nc\n").code == 0
    delete = ("stream", "delete-records", stream_name)
    assert duramen(*delete, "--before", "2", "--partition", "1", "--yes") == (
        0,
        f"Partition 1 of {stream_name} now starts at offset 2.\n",
        "",
    )
    all_gone = duramen(*delete, "--before", "end", "--yes", "--format", "json")
    assert json.loads(all_gone.out) == [{"partition": 0, "start_offset": 3}, {"partition": 1, "start_offset": 3}]
    beyond = duramen(*delete, "--before", "4", "--yes")
    assert beyond.code == 1
    assert beyond.err.endswith(" [offset-out-of-range]\n")
    assert duramen(*delete, "--before", "some", "--yes").code == 2
    assert duramen(*delete, "--yes").code == 2
    assert duramen("stream", "delete-records", stream_name + "-not", "--before", "end", "--yes").code == 1


@pytest.mark.long
def test_describe_says_what_retention_deleted_as_soon_as_it_was_written(
    new_node: Callable[..., NodeProcess], duramen_alone: Run
) -> None:
    node = new_node({"log.retention.check.interval.ms": 50}).start()
    producer = Producer({"bootstrap.servers": node.kafka})
    for number in range(5):
        producer.produce("flights", b"%d" % number, timestamp=1_388_448_000_000 + number)
    assert producer.flush(60) == 0

    def described() -> dict[str, Any]:
        ended = duramen_alone("stream", "describe", "flights", "--format", "json", server=node.http)
        (part,) = json.loads(ended.out)["partitions"]
        return dict(part)

    part = until(lambda: (part := described())["start_offset"] == 5 and part)
    reason = "deleted by retention soon after they were written: their timestamps were older than retention.ms"
    assert isinstance(part, dict)
    assert part["late"] == {"records": 5, "newest_ms": 1_388_448_000_004, "reason": reason}
    shown = duramen_alone("stream", "describe", "flights", server=node.http).out
    assert f"  partition 0, 5 records up to the time 2013-12-31T00:00:00Z: {reason}\n" in shown
    warnings = [line for line in node.log_path.read_text().splitlines() if "WARNING" in line]
    assert len(warnings) == 1, warnings
    assert "retention deletes records of stream flights that have just been written: 5 of partition 0" in warnings[0]
