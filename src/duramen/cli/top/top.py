"""`duramen top`: the activity of a node from its metrics, once a second."""

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final

import click

from duramen.base.errors import DuramenError
from duramen.cli.cluster.node_health import fetch_health
from duramen.cli.output import JSON, format_option, print_json_line
from duramen.cli.server import NodeAddress, server_option
from duramen.cli.tables import terminal_width
from duramen.cli.top.samples import MetricsSample, between, parse
from duramen.cli.top.screen import render

__all__ = ["command"]

_ANSWER_S: Final = 5.0
_QUIT: Final = b"q"


@click.command("top")
@click.option("--interval", "interval_s", type=click.FloatRange(0.1, 3600), default=1.0, show_default=True,
              metavar="SECONDS", help="Time between updates.")  # fmt: skip
@click.option("-n", "--count", type=click.IntRange(1), metavar="NUMBER",
              help="End after this many updates. [default: one for text that is not on a terminal, otherwise until q "
              "or Ctrl-C]")  # fmt: skip
@click.option("--once", is_flag=True, help="Print one interval and end: -n 1 without the screen.")
@format_option
@server_option
def command(interval_s: float, count: int | None, once: bool, format_: str, server: NodeAddress) -> int:
    """Watch a node: rates of its streams, lag of its groups, syncs, connections, memory; and how every node is.

    JSON is one document a line for each look; while the node does not answer, its `error` says why.
    """
    live = format_ != JSON and not once and sys.stdout.isatty()
    if once or (count is None and format_ != JSON and not live):
        count = 1
    try:
        first = _look(server)
        if live:
            _watch(server, first, interval_s, count)
            return 0
        answered = True
        for document in _documents(server, first, interval_s, count):
            answered = _print(server, document, format_)
    except KeyboardInterrupt:
        return 0
    return 0 if answered else 1


def _print(server: NodeAddress, document: dict[str, Any], format_: str) -> bool:
    """Print one look; returns whether the node answered."""
    if format_ == JSON:
        print_json_line(document)
    elif "error" in document:
        click.echo(f"duramen: {document['error']['detail']} [{document['error']['id']}]", err=True)
    else:
        click.echo(render(document, server.address, terminal_width(), None))
    return "error" not in document


def _look(server: NodeAddress) -> MetricsSample:
    text = server.text("/metrics", _ANSWER_S)
    return parse(text, time.monotonic())


def _sleep(seconds: float) -> bool:
    time.sleep(max(0.0, seconds))
    return False


def _documents(
    server: NodeAddress,
    before: MetricsSample,
    interval_s: float,
    count: int | None,
    wait: Callable[[float], bool] = _sleep,
) -> Iterator[dict[str, Any]]:
    """The changes in each interval, until `wait` ends it; it waits for a node that is down."""
    due_s = before.time_s
    looks = 0
    while count is None or looks < count:
        due_s = max(due_s + interval_s, time.monotonic())
        if wait(due_s - time.monotonic()):
            return
        time_ms = time.time_ns() // 1_000_000
        try:
            after = _look(server)
            nodes = fetch_health(server, server.get("/v1/cluster/nodes", _ANSWER_S)["nodes"])
            yield {"time_ms": time_ms, **between(before, after), "nodes": nodes}
            before = after
        except DuramenError as error:
            yield {"time_ms": time_ms, "error": {"id": error.id, "detail": str(error)}}
        looks += 1


def _watch(server: NodeAddress, first: MetricsSample, interval_s: float, count: int | None) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console()
    shown: dict[str, Any] = {}
    with _keys() as wait, Live(console=console, screen=True, auto_refresh=False) as live:
        begun = f"duramen {server.address}: looking for {interval_s:g} s; q ends"
        live.update(Text(begun, no_wrap=True, overflow="ellipsis"), refresh=True)
        for document in _documents(server, first, interval_s, count, wait):
            problem = document.get("error", {}).get("detail", "")
            shown = shown if problem else document
            text = _page(shown, problem, server, console.width, console.height)
            live.update(Text(text, no_wrap=True, overflow="crop"), refresh=True)


def _page(document: dict[str, Any], problem: str, server: NodeAddress, width: int, height: int) -> str:
    now = datetime.now().astimezone().strftime("%H:%M:%S")
    head = f"{now}  {problem}" if problem else f"{now}  q ends"
    if not document:
        return head
    return f"{head[:width]}\n{render(document, server.address, width, height - 1)}"


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Gives a function that waits for so many seconds, or until `q` is pressed, which it says."""
    if not sys.stdin.isatty():
        yield _sleep
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    saved = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield _pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, saved)


def _pressed(seconds: float) -> bool:
    end_s = time.monotonic() + seconds
    while True:
        ready, _, _ = select.select([sys.stdin], [], [], max(0.0, end_s - time.monotonic()))
        if not ready:
            return False
        keys = os.read(sys.stdin.fileno(), 64)
        if not keys or _QUIT in keys.lower():
            return True
