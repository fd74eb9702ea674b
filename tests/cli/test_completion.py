"""Shell completion, as the scripts of the shells ask for it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.command import Run, command_environment, run
from tests.cli.fake import FakeNode

from duramen.node.process import NodeProcess


def completed(line: str, server: str) -> list[str]:
    """What may come at the end of a line."""
    words = line.split(" ")
    also = {"_DURAMEN_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    ended = run(server=server, also=also)
    assert (ended.code, ended.err) == (0, "")
    return [found.removeprefix("plain,") for found in ended.out.splitlines() if found]


def test_commands_and_options(node: NodeProcess) -> None:
    assert completed("duramen gr", node.http) == ["group"]
    assert "add-partitions" in completed("duramen stream ", node.http)
    assert "add-partitions" in completed("duramen topic ", node.http)
    assert completed("duramen group reset g --dry", node.http) == ["--dry-run"]
    assert completed("duramen stream list --format ", node.http) == ["text", "json"]


def test_streams(duramen: Run, node: NodeProcess, stream_name: str) -> None:
    duramen("stream", "create", stream_name)
    duramen("stream", "create", stream_name + "2")
    assert completed(f"duramen stream describe {stream_name}", node.http) == [stream_name, stream_name + "2"]
    elsewhere = completed(f"duramen stream delete --server {node.http} {stream_name}2", "127.0.0.1:1")
    assert elsewhere == [stream_name + "2"]
    for before in ("group reset g --stream", "consume", "produce"):
        assert completed(f"duramen {before} {stream_name}2", node.http) == [stream_name + "2"]


def test_groups() -> None:
    groups = [{"id": name} for name in ("one", "other", "with blank", "\x1b[31m")]
    with FakeNode({"GET /v1/groups": (200, {"groups": groups, "next": None})}) as fake:
        assert completed("duramen group describe o", fake.address) == ["one", "other"]


@pytest.mark.long
@pytest.mark.parametrize("server", ["127.0.0.1:1", "nonsense"])
def test_nobody_there_is_nothing_to_say(server: str) -> None:
    assert completed("duramen stream describe ", server) == []


@pytest.mark.long
def test_somebody_else_there_is_nothing_to_say() -> None:
    for said in ("[]", "no JSON", '{"streams": [1]}'):
        with FakeNode({"GET /v1/streams?prefix=": (200, said)}) as fake:
            assert completed("duramen stream describe ", fake.address) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(shell: str) -> None:
    ended = run("completion", shell)
    assert (ended.code, ended.err, "_DURAMEN_COMPLETE" in ended.out) == (0, "", True)
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n"], input=ended.out, text=True, check=True, timeout=60)


def test_in_bash(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    (tmp_path / "duramen").write_text(f'#!/bin/sh\nexec {sys.executable} -m duramen "$@"\n')
    (tmp_path / "duramen").chmod(0o755)
    script = (
        f'PATH={tmp_path}:$PATH; eval "$(duramen completion bash)"; COMP_WORDS=(duramen vers); COMP_CWORD=1;'
        ' _duramen_completion duramen; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        [bash, "-c", script], capture_output=True, text=True, env=command_environment(), check=True, timeout=60
    )
    assert done.stdout == "version\n"


def test_a_shell_that_is_unknown() -> None:
    ended = run("completion", "cmd")
    assert (ended.code, ended.err.endswith("[usage]\n")) == (2, True)
