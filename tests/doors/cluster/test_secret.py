"""The file of the cluster's secret."""

import os
from pathlib import Path

import pytest

from duramen.base.errors import SecretUnusable
from duramen.doors.cluster.secret import make_secret, read_secret

BYTES = bytes(range(32))


def test_what_is_made_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    make_secret(str(path), BYTES)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_secret(str(path)) == BYTES


def test_the_mode_is_the_owners_alone_whatever_the_mask(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        make_secret(str(tmp_path / "secret"), BYTES)
    finally:
        os.umask(mask)
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_what_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"x")
    with pytest.raises(SecretUnusable, match="already exists and is not changed"):
        make_secret(str(path), BYTES)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SecretUnusable, match="already exists"):
        make_secret(str(tmp_path / "link"), BYTES)
    assert path.read_bytes() == b"x"
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("size", [0, 31, 4097, 100_000])
def test_a_size_that_does_not_fit(tmp_path: Path, size: int) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"x" * size)
    path.chmod(0o600)
    with pytest.raises(SecretUnusable, match="must have 32 to 4096 bytes and has"):
        read_secret(str(path))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o601])
def test_one_that_others_may_use(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    make_secret(str(path), BYTES)
    path.chmod(mode)
    with pytest.raises(SecretUnusable, match=f"has the mode {mode:04o}.*`chmod 600 {path}`"):
        read_secret(str(path))


def test_what_is_no_file_is_named_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "directory").mkdir()
    for name in ("pipe", "directory"):
        with pytest.raises(SecretUnusable, match=f"{name} is not a file"):
            read_secret(str(tmp_path / name))
    with pytest.raises(SecretUnusable, match="there is no such file; `duramen cluster secret FILE` makes one"):
        read_secret(str(tmp_path / "none"))
    with pytest.raises(SecretUnusable, match="cannot be read"):
        read_secret("a\0b")
    with pytest.raises(SecretUnusable, match="cannot be made: No such file or directory"):
        make_secret(str(tmp_path / "none" / "secret"), BYTES)
    with pytest.raises(SecretUnusable, match="cannot be made"):
        make_secret("a\0b", BYTES)
