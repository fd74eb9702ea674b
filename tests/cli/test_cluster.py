"""`duramen cluster`."""

from pathlib import Path

from tests.cli.command import Run

from duramen.doors.cluster.secret import read_secret


def test_a_secret_is_made_once(duramen_alone: Run, tmp_path: Path) -> None:
    first = duramen_alone("cluster", "secret", "one")
    assert (first.code, first.err) == (0, "")
    assert first.out.startswith("one holds a new secret: copy it to every node")
    secret = read_secret(str(tmp_path / "one"))
    again = duramen_alone("cluster", "secret", "one")
    assert (again.code, again.out) == (1, "")
    assert again.err == (
        "duramen: one already exists and is not changed, since a cluster may use it; choose another name for `FILE`"
        " [secret-unusable]\n"
    )
    assert duramen_alone("cluster", "secret", "two").code == 0
    assert read_secret(str(tmp_path / "one")) == secret != read_secret(str(tmp_path / "two"))


def test_what_it_needs_is_said(duramen_alone: Run) -> None:
    assert duramen_alone("cluster", "secret").err == (
        "duramen: missing argument 'FILE'; see `duramen cluster secret --help` [usage]\n"
    )
    assert "no such command 'secrets'" in duramen_alone("cluster", "secrets").err
