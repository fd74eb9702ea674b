"""`make install`: what goes wrong is one line with what to do, and one that was killed is finished by the next."""

import ast
import contextlib
import errno
import fcntl
import importlib.util
import os
import pty
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.clients import until

ROOT = Path(__file__).parents[2]
MAKE = shutil.which("make") or "make"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of this one that installs the build tools and Duramen only: everything else would be the same again."""
    copy = tmp_path / "checkout"
    for name in ("tools", "requirements", "src"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    shutil.copy(copy / "requirements" / "build.lock", copy / "requirements" / "all.lock")
    return copy


@pytest.fixture
def tool(checkout: Path) -> Any:
    """The checkout's tools/install.py as a module."""
    spec = importlib.util.spec_from_file_location("install_under_test", checkout / "tools" / "install.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of the loopback that refuses connections: bound, but nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.fixture
def refusing_proxy() -> Iterator[int]:
    """The port of a proxy that wants a password from everybody."""

    def answer() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def said_by(action: Callable[[], object]) -> str:
    with pytest.raises(SystemExit) as ended:
        action()
    (line,) = str(ended.value.code).splitlines()
    assert line.startswith("make install: ")
    return line.removeprefix("make install: ")


class TestPython:
    def test_an_old_one_can_read_it(self) -> None:
        ast.parse((ROOT / "tools" / "install.py").read_text(), feature_version=(3, 6))

    def test_an_old_one_is_told_of_a_newer_one(
        self, tool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(sys, "version_info", (3, 9, 2))
        monkeypatch.setenv("PATH", str(tmp_path))
        assert said_by(tool.main).endswith("; install a newer one, or name it: make PYTHON=/path/to/python3 ...")
        for name, script in (("python3.14", "#!/bin/sh\nexit 127\n"), ("python3.12", "#!/bin/sh\n")):
            (tmp_path / name).write_text(script)
            (tmp_path / name).chmod(0o755)
        said = said_by(tool.main)
        assert said.startswith("Duramen needs Python 3.11 or newer, this is ")
        assert said.endswith("; there is a newer one: make PYTHON=python3.12 ...")

    @pytest.mark.parametrize("missing", ["venv", "ensurepip"])
    def test_without_virtual_environments(self, tool: Any, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
        find_spec = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else find_spec(name))
        assert said_by(tool.main) == (
            "this Python cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv"
        )

    def test_on_windows(self, tool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tool.os, "name", "nt")
        assert "run this in WSL" in said_by(tool.check_python)

    def test_that_is_not_there(self) -> None:
        ended = subprocess.run(
            [MAKE, "install", "PYTHON=no-such-python"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 2
        assert "there is no no-such-python: install Python 3.11 or newer" in ended.stderr


def without_proxies(**environment: str) -> dict[str, str]:
    """The environment of tools that are not to reach any network."""
    clean = {name: value for name, value in os.environ.items() if not name.upper().endswith(("_PROXY", "PIP_CERT"))}
    quick = {"PIP_NO_CACHE_DIR": "1", "PIP_RETRIES": "1", "PIP_FIND_LINKS": "", "UV_HTTP_RETRIES": "0"}
    return {**clean, **quick, **environment}


class TestNetwork:
    @pytest.mark.long
    def test_an_index_that_refuses(self, checkout: Path, closed_port: int) -> None:
        ended = subprocess.run(
            [str(Path(sys.executable).resolve()), "tools/install.py"],
            cwd=checkout, capture_output=True, text=True, check=False,
            env=without_proxies(PIP_INDEX_URL=f"http://127.0.0.1:{closed_port}/simple"),
        )  # fmt: skip
        assert ended.returncode == 1
        assert not (checkout / ".venv" / "installed.sha256").exists()
        (line,) = ended.stderr.splitlines()
        assert line.startswith("make install: the package index cannot be reached: is there a network?")

    def pip(self, tool: Any, monkeypatch: pytest.MonkeyPatch, **proxy: str) -> str:
        """The one line about a pip that is to use a proxy."""
        for name, value in proxy.items():
            monkeypatch.setenv(name, value)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tool.VENV), "none"]
        environment = without_proxies(PIP_INDEX_URL="https://index.invalid/simple", **proxy)
        return said_by(lambda: tool.step("2/4  tools", command, environment))

    @pytest.mark.long
    def test_a_proxy_that_is_not_there(self, tool: Any, monkeypatch: pytest.MonkeyPatch, closed_port: int) -> None:
        said = self.pip(tool, monkeypatch, HTTPS_PROXY=f"http://me:secret@127.0.0.1:{closed_port}")
        assert said.startswith(f"the proxy 127.0.0.1:{closed_port} of HTTPS_PROXY refuses or is not there: correct it")

    @pytest.mark.long
    def test_a_proxy_that_wants_a_password(
        self, tool: Any, monkeypatch: pytest.MonkeyPatch, refusing_proxy: int
    ) -> None:
        said = self.pip(tool, monkeypatch, https_proxy=f"http://127.0.0.1:{refusing_proxy}")
        assert said.startswith(f"the proxy 127.0.0.1:{refusing_proxy} of https_proxy refuses or is not there: ")

    @pytest.mark.long
    def test_uv_without_a_network(self, tool: Any, monkeypatch: pytest.MonkeyPatch, closed_port: int) -> None:
        uv = [
            str(Path(sys.executable).parent / "uv"),
            "pip",
            "install",
            "--no-cache",
            "--target",
            str(tool.VENV),
            "none",
        ]
        environment = without_proxies(UV_DEFAULT_INDEX=f"http://127.0.0.1:{closed_port}/simple")
        said = said_by(lambda: tool.step("3/4  packages", uv, environment))
        assert said.startswith("the package index cannot be reached: ")
        proxy = f"http://127.0.0.1:{closed_port}"
        monkeypatch.setenv("HTTP_PROXY", proxy)
        environment = without_proxies(UV_DEFAULT_INDEX="http://index.invalid/simple", HTTP_PROXY=proxy)
        said = said_by(lambda: tool.step("3/4  packages", uv, environment))
        assert f"the proxy 127.0.0.1:{closed_port} of HTTP_PROXY" in said


class TestDisk:
    def test_too_little_room_is_said_before_anything_is_downloaded(
        self, tool: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tool.shutil, "disk_usage", lambda _: SimpleNamespace(free=3 * 10**8))
        assert said_by(tool.main).startswith(f"{tool.ROOT} has 0.3 GB free and ")

    @pytest.mark.parametrize(
        ("said", "meaning"),
        [
            ("ERROR: Could not install packages: [Errno 28] No space left on device", "the disk is full: "),
            ("error: failed to write\n  Caused by: No space left on device (os error 28)", "the disk is full: "),
            ("Caused by: Read-only file system (os error 30)", "{root} or the cache "),
            ("Caused by: Permission denied (os error 13)", "not allowed to write in {root} "),
            ("Caused by: invalid peer certificate: UnknownIssuer", "the certificate of the package index "),
            ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "the package index serves "),
        ],
    )
    def test_what_the_tools_say_is_understood(self, tool: Any, said: str, meaning: str) -> None:
        assert tool.cause(said, {}).startswith(meaning.format(root=tool.ROOT))

    def test_an_error_of_our_own_is_one_line_too(self, tool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(_: str) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(tool, "install", full)
        assert said_by(tool.main).startswith("the disk is full: ")

    def test_a_checkout_that_cannot_be_written(self, tool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tool.os, "access", lambda *_: False)
        assert said_by(tool.main) == f"{tool.ROOT} cannot be written: clone to where you may write"


class TestTool:
    def test_what_is_not_known_is_shown(self, tool: Any, capfd: pytest.CaptureFixture[str]) -> None:
        command = ["sh", "-c", "echo one; echo two >&2; exit 3"]
        said = said_by(lambda: tool.step("2/4  things", command, dict(os.environ)))
        assert said == "could not do: things: see above, then run `make install` again"
        assert capfd.readouterr() == ("2/4  things\n", "one\ntwo\n")

    def test_a_long_one_is_still_at_it(self, tool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """It goes on until that was said."""
        end = tmp_path / "end"
        os.mkfifo(end)
        said: list[str] = []

        def hear(line: str, **_: object) -> None:
            said.append(line)
            if len(said) == 2:
                end.write_text("")

        monkeypatch.setattr(tool, "print", hear, raising=False)
        monkeypatch.setattr(tool, "SHOWN_EVERY_S", 0.001)
        tool.step("2/4  things", ["cat", str(end)], dict(os.environ))
        assert said[0] == "2/4  things"
        assert re.fullmatch(r"     still at it, for \d+ s", said[1])

    def test_one_on_a_terminal_draws_its_progress_there(self, tool: Any) -> None:
        script = (
            "import os, install\n"
            "print(install.call(['sh', '-c', 'test -t 2 && printf progress >&2'], dict(os.environ), on_screen=True))"
        )
        ours, terminal = pty.openpty()
        with os.fdopen(ours, "rb", buffering=0) as screen:
            said = subprocess.run(
                [sys.executable, "-c", script], cwd=tool.ROOT / "tools", stdout=subprocess.PIPE, stderr=terminal,
                text=True, check=True,
            )  # fmt: skip
            os.close(terminal)
            assert screen.read(100) == b"progress"
        assert said.stdout == "(0, 'progress')\n"

    @pytest.mark.long
    def test_uv_is_set_up_as_pip_is(self, tool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(tool, "PYTHON", sys.executable)
        for name in ("SSL_CERT_FILE", "UV_DEFAULT_INDEX", "UV_FIND_LINKS"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_INDEX_URL", "https://index.invalid/simple")
        monkeypatch.setenv("PIP_CERT", "/ca.pem")
        monkeypatch.setenv("PIP_FIND_LINKS", f"/no/such/directory {tmp_path}")
        monkeypatch.setenv("PYTHONPATH", "/elsewhere")
        monkeypatch.setenv("PIP_USER", "1")
        environment = tool.clean_environment()
        assert "PYTHONPATH" not in environment
        assert environment["PIP_USER"] == "0"
        environment["PATH"] = os.environ["PATH"]
        found = tool.as_pip_is_set_up(environment)
        assert found["UV_DEFAULT_INDEX"] == "https://index.invalid/simple"
        assert found["SSL_CERT_FILE"] == "/ca.pem"
        assert found["UV_FIND_LINKS"] == str(tmp_path)
        assert tool.as_pip_is_set_up({**environment, "PIP_NO_INDEX": "1"})[tool.NO_INDEX] == "1"
        environment["UV_DEFAULT_INDEX"] = "https://asked.invalid/simple"
        assert tool.as_pip_is_set_up(environment)["UV_DEFAULT_INDEX"] == "https://asked.invalid/simple"

    def test_a_cache_of_another_user_is_left_alone(
        self, tool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.delenv("UV_CACHE_DIR", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
        assert tool.clean_environment()["UV_CACHE_DIR"] == str(tmp_path / "caches" / "uv")
        (tmp_path / "caches" / "uv").mkdir(parents=True)
        monkeypatch.setattr(tool.os, "geteuid", lambda: os.getuid() + 1)
        assert tool.clean_environment()["UV_CACHE_DIR"] == str(tool.ROOT / ".cache" / "uv")


class TestWhere:
    def test_two_at_once_wait_for_each_other(self, tool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        said: queue.Queue[str] = queue.Queue()
        monkeypatch.setattr(tool, "print", lambda line, **_: said.put(line), raising=False)

        def second() -> None:
            with tool.turnstile():
                said.put("through")

        with (tool.ROOT / "tools" / "install.py").open("rb") as first:
            fcntl.flock(first, fcntl.LOCK_EX)
            waiting = threading.Thread(target=second, daemon=True)
            waiting.start()
            assert said.get(timeout=60) == "waiting for another `make` that installs here"
            assert said.empty()
        assert said.get(timeout=60) == "through"
        waiting.join(60)

    def test_under_sudo_the_owner_of_the_checkout_installs(self, tool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        became: list[str] = []
        for name in ("initgroups", "setgid", "setuid"):
            monkeypatch.setattr(tool.os, name, lambda *_, name=name: became.append(name))
        monkeypatch.setattr(tool.os, "geteuid", lambda: 0)
        owner = tool.ROOT.stat().st_uid
        monkeypatch.setenv("SUDO_UID", str(owner + 1))
        tool.give_up_root()
        assert became == []
        other = 65534

        class Owned:
            def stat(self) -> os.stat_result:
                return os.stat_result([0, 0, 0, 0, other, 0, 0, 0, 0, 0])

        monkeypatch.setattr(tool, "ROOT", Owned())
        monkeypatch.setenv("SUDO_UID", str(other))
        # All that it changes, so that it is put back.
        before = {"HOME": "/root", "USER": "root", "LOGNAME": "root", "XDG_CACHE_HOME": "/root/.cache"}
        for name, value in before.items():
            monkeypatch.setenv(name, value)
        tool.give_up_root()
        assert became == ["initgroups", "setgid", "setuid"]
        assert before.items() & os.environ.items() == set()

    def test_an_environment_is_used_again_where_it_was_finished_and_not_moved(
        self, tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        system_python = str(Path(sys.executable).resolve())
        assert not tool.is_usable()
        subprocess.run([system_python, "-m", "venv", "--without-pip", str(tool.VENV)], check=True)
        (packages,) = tool.VENV.glob("lib/python*/site-packages")
        (packages / "pip.py").touch()
        assert not tool.is_usable()
        tool.STAMP.write_text("of something else")
        assert tool.is_usable()
        monkeypatch.setattr(tool, "VENV", shutil.move(tool.VENV, tmp_path / "moved"))
        for name in ("STAMP", "PYTHON"):
            monkeypatch.setattr(tool, name, tool.VENV / getattr(tool, name).relative_to(tool.ROOT / ".venv"))
        assert not tool.is_usable()


def begin(checkout: Path) -> "subprocess.Popen[bytes]":
    """Start to install, in a process group of its own."""
    system_python = str(Path(sys.executable).resolve())
    return subprocess.Popen([system_python, "tools/install.py"], cwd=checkout, start_new_session=True)


def has_begun(venv: Path) -> bool:
    return venv.exists()


def has_python_without_pip(venv: Path) -> bool:
    return (venv / "bin" / "python").exists()


def has_half_of_the_build_tools(venv: Path) -> bool:
    return any(venv.glob("lib/python*/site-packages/hatchling"))


def has_everything_but_duramen(venv: Path) -> bool:
    return any(venv.glob("lib/python*/site-packages/hatchling-*.dist-info/RECORD"))


@pytest.mark.long
@pytest.mark.parametrize(
    "moment", [has_begun, has_python_without_pip, has_half_of_the_build_tools, has_everything_but_duramen]
)
def test_the_next_one_finishes(checkout: Path, moment: Callable[[Path], bool]) -> None:
    venv = checkout / ".venv"
    with begin(checkout) as killed:
        until(lambda: moment(venv) or killed.poll() is not None)
        os.killpg(killed.pid, signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL
    assert not (venv / "installed.sha256").exists()
    with begin(checkout) as finished:
        assert finished.wait(300) == 0
    said = subprocess.run(
        [venv / "bin" / "python", "-I", "-c", "import duramen; print(duramen.__file__)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.strip() == str(checkout / "src" / "duramen" / "__init__.py")
    stamped_ns = (venv / "installed.sha256").stat().st_mtime_ns
    with begin(checkout) as again:
        assert again.wait(300) == 0
    assert (venv / "installed.sha256").stat().st_mtime_ns == stamped_ns
