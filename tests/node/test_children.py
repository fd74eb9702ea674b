"""The nats-server of a node where the kernel does not kill it with its parent, as on macOS."""

import subprocess
import sys

from tests.clients import until

from duramen.node.children import watch

SLEEPER = [sys.executable, "-c", "print('ready', flush=True); import time; time.sleep(600)"]
PARENT = """
import subprocess, sys
from duramen.node.children import watch
child = subprocess.Popen(sys.argv[1:], start_new_session=True)
watcher = watch(child.pid)
print(child.pid, watcher.pid, flush=True)
sys.stdin.read()
"""


def runs(process_id: int) -> bool:
    """Whether a process is there, and not only waits for being buried."""
    listed = subprocess.run(
        ["/bin/ps", "-o", "stat=", "-p", str(process_id)], capture_output=True, text=True, check=False
    )
    return listed.stdout.strip()[:1] not in ("", "Z")


def test_the_watcher_kills_it_when_the_node_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, "/bin/sleep", "600"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child, watcher = map(int, parent.stdout.readline().split())
        assert runs(child)
        assert runs(watcher)
        parent.kill()
    until(lambda: not runs(child) and not runs(watcher))


def test_a_watcher_that_is_killed_lets_it_live() -> None:
    with subprocess.Popen(SLEEPER, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        watcher = watch(child.pid)
        assert watcher.stdin is not None
        watcher.kill()
        watcher.wait()
        watcher.stdin.close()
        assert child.poll() is None
        child.kill()
