"""Fixtures that every part of the suite shares."""

import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

from duramen.node.process import NodeProcess
from tests.examples import SEARCH, examples
from tests.untyped import untyped

# A shared machine is slow at times: no example fails for that. `make test` tries the same few examples every time, so
# that what it says is about the change; `make test-long` searches with new ones and more (--hypothesis-profile=search).
settings.register_profile(
    "duramen", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, max_examples=examples(100)
)
settings.register_profile(SEARCH, settings.get_profile("duramen"), derandomize=False, print_blob=True, max_examples=100)
settings.load_profile("duramen")

# A shell that runs the suite in its background lets it ignore Ctrl-C, and so everything that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_KEPT_SLOWEST: Final = 100
_A_SUITE: Final = 1000  # tests; fewer are a part of it

_SPARK: Final = "tests/spark/"
_LONGEST = ("spark", "sim", "cluster", "docs", "demo", "compat")

# Many a test writes records with times that are years old: no check of retention comes between it and its reader.
_SHARED: Final = {"group.initial.rebalance.delay.ms": 0, "log.retention.check.interval.ms": 86_400_000}


@pytest.hookimpl(tryfirst=True)  # marks are put on before `-m` selects by them
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The rooms with the longest files come first: none is begun when all others have ended."""
    _mark_long_variants(items)
    root = Path(__file__).parent

    def turn(item: pytest.Item) -> int:
        room = item.path.relative_to(root).parts[0]
        return _LONGEST.index(room) if room in _LONGEST else len(_LONGEST)

    items.sort(key=turn)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """All tests on Spark run in one worker: a second session would take long to start, and to be as fast."""
    if config.getoption("dist") != "loadfile":
        return None
    scheduler = untyped("xdist.scheduler").LoadFileScheduling(config, log)
    file_of = scheduler._split_scope
    scheduler._split_scope = lambda nodeid: _SPARK if nodeid.startswith(_SPARK) else file_of(nodeid)
    return scheduler


def _mark_long_variants(items: list[pytest.Item]) -> None:
    """Of a test marked `variants(n)`, all but the first n that are not long anyway are long."""
    seen: Counter[str] = Counter()
    for item in items:
        marker = item.get_closest_marker("variants")
        if marker is None or item.get_closest_marker("long"):
            continue
        test, _, _ = item.nodeid.partition("[")
        if seen[test] >= marker.args[0]:
            item.add_marker(pytest.mark.long)
        seen[test] += 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A run of the suite leaves its slowest tests in build/slowest-tests.txt."""
    taken = Counter[str]()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                taken[report.nodeid] += round(1000 * report.duration)
    if len(taken) > _A_SUITE:
        lines = [f"{taken_ms / 1000:7.2f} s  {test}" for test, taken_ms in taken.most_common(_KEPT_SLOWEST)]
        path = Path(__file__).parent.parent / "build" / "slowest-tests.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node without NATS that tests share; they use streams of their own."""
    directory = tmp_path_factory.mktemp("node") / "data"
    with NodeProcess(directory, _SHARED) as process:
        yield process
    _check_log(process)


def _check_log(node: NodeProcess) -> None:
    """No request, and no stop, leaves an unexpected exception in the log of a node."""
    if node.log_path.exists():
        before, found, behind = node.log_path.read_text(errors="replace").partition("Traceback")
        assert not found, before[-1000:] + found + behind[:3000]


@pytest.fixture
def new_node(tmp_path: Path) -> Iterator[Callable[..., NodeProcess]]:
    """Makes nodes of the test's own, not started yet, with settings by dotted names; they end with the test."""
    made: list[NodeProcess] = []

    def make(settings: Mapping[str, object] | None = None, directory: str = "data") -> NodeProcess:
        defaults = {"group.initial.rebalance.delay.ms": 0}
        process = NodeProcess(tmp_path / directory, defaults | dict(settings or {}))
        made.append(process)
        return process

    yield make
    for process in made:
        process.kill()
    for process in made:
        _check_log(process)


@pytest.fixture
def stream_name(request: pytest.FixtureRequest) -> str:
    """A stream name that no other test uses."""
    return "".join(character if character.isalnum() else "-" for character in request.node.nodeid)[-200:]
