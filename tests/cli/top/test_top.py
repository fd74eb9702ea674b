"""`duramen top`."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from tests.cli.command import Run, command_environment, run
from tests.cli.terminal import Terminal

from duramen.cli.top.samples import between, parse
from duramen.cli.top.screen import render
from duramen.node.process import NodeProcess


@pytest.mark.long
def test_piped_it_is_one_table(duramen: Run, stream_name: str) -> None:
    duramen("stream", "create", stream_name)
    duramen("produce", stream_name, stdin=b"a\nb\n")
    ended = duramen("top", "--interval", "0.1")
    assert (ended.code, ended.err) == (0, "")
    assert f"\n{stream_name} " in ended.out
    assert "Kafka connections" in ended.out
    (at,) = (at for at, line in enumerate(ended.out.splitlines()) if "DISK FREE" in line)
    assert ended.out.splitlines()[at + 1].split()[-1] == "yes"
    assert duramen("top", "--once", "--interval", "0.1").code == 0


def test_json_is_a_line_for_each_look(duramen: Run, node: NodeProcess, stream_name: str) -> None:
    duramen("stream", "create", stream_name)
    with subprocess.Popen(
        [sys.executable, "-m", "duramen", "top", "--format", "json", "--interval", "0.1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=command_environment(node.http), text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        looks = (json.loads(line) for line in process.stdout)
        next(looks)
        duramen("produce", stream_name, stdin=b"a\nb\n")
        for look in looks:
            rates = {one["name"]: one["records_in_per_s"] for one in look["streams"]}
            if rates.get(stream_name, 0) > 0:
                break
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert (process.wait(60), process.stderr.read()) == (0, "")
    ended = duramen("top", "--format", "json", "--interval", "0.1", "-n", "2")
    assert (ended.code, len(ended.out.splitlines())) == (0, 2)
    (one,) = json.loads(ended.out.splitlines()[0])["nodes"]
    assert (one["health"]["storage"], one["health"]["problem"], one["error"]) == ("writable", "", None)
    assert one["lag"] == {"partitions": 0, "records": 0, "unheard": 0, "seconds": 0.0}


def test_the_screen(duramen: Run, node: NodeProcess, stream_name: str) -> None:
    duramen("stream", "create", stream_name)
    code, shown = Terminal("top", "--interval", "0.1", server=node.http).answer("REC/S IN", "q").end()
    assert (code, "Traceback" in shown) == (0, False)
    code, shown = Terminal("top", "--interval", "0.1", server=node.http).interrupt("REC/S IN").end()
    assert (code, "Traceback" in shown) == (0, False)
    assert Terminal("top", "--interval", "0.1", "-n", "1", server=node.http).end()[0] == 0


@pytest.mark.long
def test_a_node_that_goes_away_is_waited_for(new_node: Callable[..., NodeProcess]) -> None:
    node = new_node().start()
    with subprocess.Popen(
        [sys.executable, "-m", "duramen", "top", "--format", "json", "--interval", "0.1"],
        stdout=subprocess.PIPE, env=command_environment(node.http), text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        looks = (json.loads(line) for line in process.stdout)
        assert "error" not in next(looks)
        node.kill()
        gone = next(look for look in looks if "error" in look)
        assert gone["error"]["id"] == "server-unreachable"
        node.restart()
        assert next(look for look in looks if "error" not in look)["streams"] is not None
        screen = Terminal("top", "--interval", "0.1", server=node.http).answer("write-ahead log", "")
        node.kill()
        code, _ = screen.answer("no node answers at", "q").end()
        assert code == 0
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(60) == 0


def test_nobody_there() -> None:
    ended = run("top", "--once", server="127.0.0.1:1")
    assert (ended.code, ended.out, "[server-unreachable]" in ended.err) == (1, "", True)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 12), (200, 50)])
def test_a_page_fits_the_terminal(width: int, height: int) -> None:
    long = "x" * 100
    lines = [f'duramen_bytes_in_total{{stream="{long}{number}"}} {number}' for number in range(100)]
    lines += [f'duramen_group_lag_records{{group="{long}{number}",stream="{long}"}} {number}' for number in range(100)]
    sample = parse("\n".join(lines), 0.0)
    page = render(between(sample, sample), "127.0.0.1:9644", width, height).splitlines()
    assert max(len(line) for line in page) <= width
    assert len(page) <= height
    assert any(line.startswith("… and ") for line in page)
