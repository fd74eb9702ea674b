"""A node as a process: event loop, signals, log lines, exit code."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from typing import Any, Final, Protocol

from duramen.base.errors import DirectoryUnusable, DuramenError
from duramen.base.ports import FileSystem
from duramen.base.settings import Settings
from duramen.doors.kafka.connection.faults import RequestFaults
from duramen.node.logs import configure
from duramen.node.node import NodeAssembly
from duramen.node.reload import Load, reload
from duramen.node.supervisor import Supervisor

__all__ = ["NodeExtension", "run"]


class NodeExtension(Protocol):
    """A test's own additions to a node besides its doors."""

    faults: RequestFaults

    async def begin(self, node: NodeAssembly, stop: Callable[[], None]) -> None:
        """The node is about to start; `stop` stops it like a signal."""


_log = logging.getLogger("duramen.node")

_CLOSE_S: Final = 5.0
_FAILED: Final = 1
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def run(
    settings: Settings,
    say: Callable[[str], None],
    rehearsal: NodeExtension | None = None,
    through: Callable[[FileSystem], FileSystem] | None = None,
    load: Load | None = None,
) -> int:
    """Run a node until it is stopped; `say` gets the banner. Returns 0 after a requested stop, 1 after a failure.

    With a `rehearsal` it is a test's own node; `through` wraps its files; `load` reads its settings again at SIGHUP.

    Raises SettingInvalid for settings that contradict each other, DuramenError if it could not start.
    """
    configure(settings.text("logging.level"), settings.text("logging.format"))
    for warning in settings.warnings:
        _log.warning("%s", warning)
    node = NodeAssembly(settings, rehearsal.faults if rehearsal is not None else None, through)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_run(node, say, rehearsal, load))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _run(
    node: NodeAssembly, say: Callable[[str], None], rehearsal: NodeExtension | None, load: Load | None
) -> int:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_unexpected)
    told = asyncio.Event()
    twice = asyncio.Event()

    def tell() -> None:
        (twice if told.is_set() else told).set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, tell)
    supervisor = Supervisor()
    if load is not None:
        _reload_on_hangup(loop, node, load, supervisor, told.set)
    if rehearsal is not None:
        await rehearsal.begin(node, told.set)
    code = await _until_told(node, say, told, twice, supervisor)
    _exit_on_signal(loop, code)
    return code


def _exit_on_signal(loop: asyncio.AbstractEventLoop, code: int) -> None:
    """The node has stopped: a signal from here on ends work that may still take time, such as a recovery."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    for number in _SIGNALS:
        loop.remove_signal_handler(number)
        signal.signal(number, lambda *_: os._exit(code))
    loop.remove_signal_handler(signal.SIGHUP)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _reload_on_hangup(
    loop: asyncio.AbstractEventLoop, node: NodeAssembly, load: Load, supervisor: Supervisor, stop: Callable[[], None]
) -> None:
    """SIGHUP reloads the settings; if it comes from the end of the node's terminal, it stops the node."""
    # Under nohup the end of the terminal must have no effect.
    attended = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()

    def hang_up() -> None:
        if attended and not _has_terminal():
            stop()
            return
        with supervisor.reloading():
            reload(node, load)

    loop.add_signal_handler(signal.SIGHUP, hang_up)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


async def _until_told(
    node: NodeAssembly, say: Callable[[str], None], told: asyncio.Event, twice: asyncio.Event, supervisor: Supervisor
) -> int:
    starting = asyncio.ensure_future(node.start())
    stopping = asyncio.ensure_future(told.wait())
    telling = asyncio.ensure_future(supervisor.tell_start(node.how_far))
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    telling.cancel()
    if starting.done():
        try:
            starting.result()
        except OSError as error:
            raise DirectoryUnusable(f"{node.data_dir} cannot be used: {error.strerror or error}") from None
        for line in node.banner():
            say(line)
        supervisor.ready()
        await told.wait()
    else:
        starting.cancel()
    supervisor.stopping()
    _log.info("stopping")
    return await _stop(node, twice)


async def _stop(node: NodeAssembly, twice: asyncio.Event) -> int:
    """Move leadership away, however long that takes; the rest of the stop must be quick.

    A second request stops at once.
    """
    hurried = asyncio.ensure_future(twice.wait())
    try:
        for step, limit_s in ((node.drain, None), (node.stop, _CLOSE_S)):
            ending = asyncio.ensure_future(step())
            done, _ = await asyncio.wait({ending, hurried}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if ending in done:
                ending.result()
                continue
            ending.cancel()
            if hurried in done:
                return 0
            _log.error("not closed within %.0f s: stopping at once; the next start recovers", _CLOSE_S)
            return _FAILED
        return 0
    finally:
        hurried.cancel()


def _unexpected(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, DuramenError | ConnectionError):
        _log.warning("%s: %s", context.get("message"), error)
    else:
        _log.error("%s", context.get("message"), exc_info=error)
