"""The command itself: help, versions, wrong words, signals while it starts, outputs that cannot be written."""

import json
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.cli.command import Run, command_environment, run

from duramen.node.process import NodeProcess

ALONE = ("--kafka-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--nats", "off")


def test_help_names_every_command(duramen_alone: Run) -> None:
    ended = duramen_alone("--help")
    assert ended.code == 0
    for command in (
        "serve", "stream", "group", "produce", "consume", "log", "top", "doctor", "bench", "completion", "version",
    ):  # fmt: skip
        assert f"\n  {command} " in ended.out


def test_version(duramen_alone: Run) -> None:
    assert duramen_alone("version").out.startswith(f"duramen {version('duramen')}")
    assert duramen_alone("--version").out == duramen_alone("version").out
    assert json.loads(duramen_alone("version", "--format", "json").out)["version"] == version("duramen")


def test_no_command_and_no_such_command(duramen_alone: Run) -> None:
    assert duramen_alone().code == 2
    assert duramen_alone("sreve") == (
        2, "", "duramen: no such command 'sreve'; did you mean 'serve'? see `duramen --help` [usage]\n"
    )  # fmt: skip


class TestOutput:
    def _run(self, redirection: str, words: str, server: str = "", **also: str) -> tuple[int, str]:
        done = subprocess.run(
            ["/bin/sh", "-c", f'exec "$0" -m duramen {words} {redirection}', sys.executable],
            capture_output=True, text=True, env=command_environment(server or None, also), check=False, timeout=60,
        )  # fmt: skip
        return done.returncode, done.stderr

    @pytest.mark.variants(3)
    @pytest.mark.parametrize("unbuffered", ["", "1"])
    @pytest.mark.parametrize("words", ["version", "--help", "", "stream --help", "stream list --internal", "consume s"])
    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
    def test_that_is_full(self, node: NodeProcess, words: str, unbuffered: str) -> None:
        run("stream", "create", "s", server=node.http)
        run("produce", "s", stdin=b"1\n2\n", server=node.http)
        code, said = self._run(">/dev/full", words, node.http, PYTHONUNBUFFERED=unbuffered)
        assert code == 1
        assert said.startswith("duramen: ")
        assert said.endswith("No space left on device [system-failed]\n")
        assert said.count("\n") == 1

    @pytest.mark.parametrize("words", ["version", "--help", "serve"])
    def test_that_is_closed(self, words: str) -> None:
        code, said = self._run(">&-", words)
        assert code == 1
        assert said.startswith("duramen: standard output is closed; send it to /dev/null")
        assert said.count("\n") == 1

    def test_input_that_is_closed(self, node: NodeProcess) -> None:
        code, said = self._run("<&-", "produce s", node.http)
        assert (code, said.startswith("duramen: standard input is closed"), said.count("\n")) == (1, True, 1)

    def test_where_nobody_hears_the_error(self) -> None:
        assert self._run("2>&-", "stream list --server 127.0.0.1:1") == (1, "")

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
    def test_a_node_whose_banner_cannot_be_written_goes_on(self, tmp_path: Path) -> None:
        with Path("/dev/full").open("w") as full, subprocess.Popen(
            [sys.executable, "-m", "duramen", "serve", "--data-dir", str(tmp_path / "data"), *ALONE],
            stdout=full, stderr=subprocess.PIPE, text=True, env=command_environment(),
        ) as process:  # fmt: skip
            assert process.stderr is not None
            said = iter(process.stderr.readline, "")
            assert any("standard output cannot be written: No space left on device" in line for line in said)
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            assert "Traceback" not in process.stderr.read()
            assert process.wait(60) == 0


class TestWhatNobodyExpected:
    @pytest.fixture
    def broken(self, tmp_path: Path) -> dict[str, str]:
        """An environment in which what `version` calls raises."""
        (tmp_path / "sitecustomize.py").write_text(
            "import platform\ndef broken():\n    raise RuntimeError('two\\nlines')\nplatform.python_version = broken\n"
        )
        return {"PYTHONPATH": str(tmp_path)}

    def test_is_one_line(self, broken: dict[str, str]) -> None:
        ended = run("version", also=broken)
        assert ended == (
            1, "", "duramen: this is a bug in Duramen: RuntimeError: two lines; DURAMEN_TRACEBACK=1 shows where [bug]\n"
        )  # fmt: skip

    def test_is_named_where_it_cannot_say_more(self, tmp_path: Path) -> None:
        (tmp_path / "sitecustomize.py").write_text(
            "import platform\nclass Silent(Exception):\n    def __str__(self):\n        raise AssertionError\n"
            "def broken():\n    raise Silent\nplatform.python_version = broken\n"
        )
        ended = run("version", also={"PYTHONPATH": str(tmp_path)})
        assert ended == (1, "", "duramen: this is a bug in Duramen: Silent; DURAMEN_TRACEBACK=1 shows where [bug]\n")

    def test_is_shown_whole_when_asked_for(self, broken: dict[str, str]) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "duramen", "version"],
            capture_output=True, text=True, env=command_environment(None, broken | {"DURAMEN_TRACEBACK": "1"}),
            check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 1
        assert done.stderr.startswith("Traceback")
        assert "RuntimeError: two\nlines" in done.stderr


class TestSignalsWhileItStarts:
    """A finder of modules sends the signal when the import of a certain module begins: no time is involved."""

    def _run(self, tmp_path: Path, module: str, number: signal.Signals, *words: str) -> tuple[int, str]:
        (tmp_path / "sitecustomize.py").write_text(
            "import os, sys\n"
            "class Finder:\n"
            "    def find_spec(self, name, path=None, target=None):\n"
            f"        if name == {module!r}:\n"
            f"            os.kill(os.getpid(), {int(number)})\n"
            "sys.meta_path.insert(0, Finder())\n"
        )
        done = subprocess.run(
            [sys.executable, "-m", "duramen", *words],
            capture_output=True, text=True, env=command_environment(None, {"PYTHONPATH": str(tmp_path)}),
            cwd=tmp_path, check=False, timeout=60,
        )  # fmt: skip
        return done.returncode, done.stderr

    @pytest.mark.variants(3)
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    @pytest.mark.parametrize(
        "module",
        ["click", "duramen.cli.serve", "duramen.base.catalogue.catalogue", "asyncio", "rocksdict", "duramen.node.run"],
    )
    def test_serve_is_stopped_as_asked(self, tmp_path: Path, module: str, number: signal.Signals) -> None:
        assert self._run(tmp_path, module, number, "serve", *ALONE) == (0, "")
        assert not (tmp_path / "duramen-data").exists()

    @pytest.mark.parametrize("module", ["click", "duramen.cli.streams.stream", "h11"])
    def test_others_are_interrupted(self, tmp_path: Path, module: str) -> None:
        assert self._run(tmp_path, module, signal.SIGINT, "stream", "list", "--server", "127.0.0.1:1") == (130, "")

    def test_serve_in_the_middle_of_starting(self, tmp_path: Path) -> None:
        code, said = self._run(tmp_path, "uvicorn.lifespan.off", signal.SIGTERM, "serve", *ALONE)
        assert (code, "Traceback" in said, "stopping" in said) == (0, False, True)


def test_ctrl_c_that_is_ignored_stays_ignored(node: NodeProcess) -> None:
    """As in a script that runs a command in the background."""
    run("stream", "create", "s", server=node.http)
    with subprocess.Popen(
        ["/bin/sh", "-c", 'trap "" INT; exec "$0" -m duramen produce s', sys.executable],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=command_environment(node.http),
    ) as process:  # fmt: skip
        process.send_signal(signal.SIGINT)
        _, said = process.communicate("1\n", timeout=60)
    assert process.returncode in (0, -signal.SIGINT)  # the shell itself may not have come so far
    assert said in ("1 records written to s\n", "")
