"""`tools/native.py`: the native package is built where it can be, and what keeps it from being built is one line."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
needs_cargo = pytest.mark.skipif(shutil.which("cargo") is None, reason="there is no Rust toolchain (cargo)")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what belongs to the native package."""
    copy = tmp_path / "checkout"
    ignored = shutil.ignore_patterns("target", "Cargo.lock", "__pycache__")
    for name in ("tools", "native", "requirements"):
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    return copy


@pytest.fixture
def tool(checkout: Path) -> Any:
    """The checkout's tools/native.py as a module."""
    spec = importlib.util.spec_from_file_location("native_under_test", checkout / "tools" / "native.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ran(checkout: Path, action: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "tools/native.py", action], cwd=checkout, env={**os.environ, **environment},
        capture_output=True, text=True, check=False, timeout=1800,
    )  # fmt: skip


def pretend(place: Path, name: str, script: str) -> str:
    """A tool of that name that does `script`, in `place`; returns a PATH that begins there."""
    place.mkdir(exist_ok=True)
    (place / name).write_text(f"#!/bin/sh\n{script}\n")
    (place / name).chmod(0o755)
    return f"{place}{os.pathsep}{os.environ['PATH']}"


def test_the_lock_holds_names_versions_and_hashes_and_no_addresses() -> None:
    text = (ROOT / "native" / "crates.lock").read_text()
    assert "://" not in text
    packages = text.split("[[package]]")[1:]
    for package in packages:
        assert re.search(r'^name = "[\w-]+"\nversion = "[^"]+"$', package, re.MULTILINE)
        own = 'name = "duramen-native"' in package
        assert own != bool(re.search(r'^checksum = "[0-9a-f]{64}"$', package, re.MULTILINE))


def test_cargo_gets_its_lock_back(tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever Cargo resolves today, what is built is what is locked, under the registry's name that Cargo uses."""
    resolved = 'version = 4\n\n[[package]]\nname = "x"\nversion = "9.9.9"\nsource = "registry+here"\nchecksum = "00"\n'
    (tmp_path / "resolved").write_text(resolved)
    path = pretend(tmp_path / "bin", "cargo", f'cp "{tmp_path}/resolved" Cargo.lock')
    monkeypatch.setenv("PATH", path)
    tool.restore_lock()
    text = tool.CARGO_LOCK.read_text()
    assert tool.without_addresses(text) == tool.LOCK.read_text()
    assert text.count('source = "registry+here"\nchecksum = ') == text.count("\nchecksum = ") > 50
    # What is right already is left alone, without Cargo.
    monkeypatch.setenv("PATH", "")
    tool.restore_lock()


def test_without_a_toolchain_the_install_goes_on(checkout: Path, tmp_path: Path) -> None:
    done = ran(checkout, "install", PATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert "without the native package" in line
    assert line.endswith(": there is no Rust toolchain (cargo)")
    assert ran(checkout, "must", PATH=str(tmp_path)).stderr == "native: there is no Rust toolchain (cargo)\n"


@pytest.mark.parametrize("action", ["wheel", "lint", "test", "lock"])
def test_without_a_toolchain_there_is_nothing_to_do(checkout: Path, tmp_path: Path, action: str) -> None:
    done = ran(checkout, action, PATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "nothing to do for the native package: there is no Rust toolchain (cargo)\n"


def test_a_failed_build_is_a_line_and_the_install_goes_on(checkout: Path, tmp_path: Path) -> None:
    path = pretend(tmp_path / "bin", "cargo", 'echo "    Updating"; echo "error: no route to the registry"; exit 101')
    done = ran(checkout, "install", PATH=path)
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert line.endswith(": cargo: error: no route to the registry")
    done = ran(checkout, "must", PATH=path)
    assert (done.returncode, done.stderr) == (1, "native: cargo: error: no route to the registry\n")


@needs_cargo
@pytest.mark.long
def test_the_crates_own_tests() -> None:
    """Built where `make install` builds, so that only what is tested is compiled."""
    done = ran(ROOT, "test")
    assert done.returncode == 0, done.stderr
