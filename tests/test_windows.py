"""What works on Windows: importing Duramen, its client, its Spark source; commands, but for `serve`, `log`, secrets."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "src"
MODULES = (
    "duramen",
    "pyspark_duramen",
    *sorted(
        ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")
        for layer in ("base", "codec", "client", "spark", "cli")
        for path in (SOURCES / "duramen" / layer).rglob("*.py")
    ),
)

# The standard library and other people's packages choose by the platform when they are imported: they come first.
AS_ON_WINDOWS = """
import asyncio, concurrent.futures, ctypes, http.server, importlib.metadata, logging, multiprocessing, os, platform
import selectors, shutil, signal, ssl, subprocess, sys, sysconfig, tempfile
import click, cramjam, fastcrc, msgspec, numpy, pyarrow, pyspark.sql.datasource, rich.console, rich.progress

sysconfig.get_config_vars()
for name in ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "uvloop"):
    sys.modules[name] = None
for name in ("O_CLOEXEC", "O_DIRECTORY", "RWF_NOWAIT", "fdatasync", "geteuid", "getuid", "posix_fallocate", "pread",
             "preadv", "pwrite", "pwritev"):
    delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGUSR1", "pthread_sigmask"):
    delattr(signal, name)
sys.platform = "win32"
"""


def on_windows(
    script: str, *arguments: str, environment: Mapping[str, str] = os.environ
) -> "subprocess.CompletedProcess[str]":
    """Run a script in a Python that takes itself for one on Windows."""
    return subprocess.run(
        [sys.executable, "-c", AS_ON_WINDOWS + script, *arguments],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip


def test_every_module_of_users_can_be_imported() -> None:
    ended = on_windows("import importlib\nfor name in sys.argv[1:]:\n    importlib.import_module(name)\n", *MODULES)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.variants(1)
@pytest.mark.parametrize("arguments", [("serve",), ("serve", "--data-dir", "x")])
def test_serve_says_what_to_do(arguments: tuple[str, ...]) -> None:
    ended = on_windows("from duramen.cli.main import main\nmain()\n", *arguments)
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith(
        "duramen: a node needs Linux or macOS: on Windows run it in WSL (wsl --install), and clients"
    )
    assert "dependency-missing" in line


@pytest.mark.variants(1)
@pytest.mark.parametrize("name", ["dump", "stats", "verify", "salvage", "truncate"])
def test_what_reads_a_data_directory_says_what_to_do(name: str) -> None:
    ended = on_windows("from duramen.cli.main import main\nmain()\n", "log", name, "data")
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert "on Windows run `duramen log` in WSL (wsl --install)" in line


def test_what_makes_a_secret_says_what_to_do() -> None:
    ended = on_windows("from duramen.cli.main import main\nmain()\n", "cluster", "secret", "file")
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert "on Windows run `duramen cluster secret` in WSL (wsl --install)" in line


@pytest.mark.parametrize("command", ["version", "doctor"])
def test_other_commands_work(command: str) -> None:
    ended = on_windows("from duramen.cli.main import main\nmain()\n", command)
    assert ended.returncode in (0, 1)
    assert ended.stderr == ""
    assert ended.stdout


@pytest.mark.long
def test_a_user_without_a_home_is_told_what_java_needs() -> None:
    homes = ("HOME", "USERPROFILE", "HOMEPATH", "XDG_CACHE_HOME", "JAVA_HOME", "PATH")
    environment = {name: value for name, value in os.environ.items() if name not in homes} | {"PATH": ""}
    ended = on_windows("from duramen.cli.main import main\nmain()\n", "doctor", environment=environment)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert "-> this user has no home directory: set XDG_CACHE_HOME to a directory that can be written" in ended.stdout


def test_a_broker_for_tests_says_what_to_do() -> None:
    script = "import duramen.testing.plugin\nduramen.testing.broker().__enter__()\n"
    assert "on Windows run your tests in WSL (wsl --install)" in on_windows(script).stderr.splitlines()[-1]
