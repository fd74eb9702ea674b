"""The command itself: help, versions, wrong words."""

from importlib.metadata import version

from tests.cli.command import Run


def test_help_names_every_command(duramen_alone: Run) -> None:
    ended = duramen_alone("--help")
    assert ended.code == 0
    for command in ("serve", "stream", "produce", "consume", "log", "doctor", "bench", "version"):
        assert f"\n  {command} " in ended.out


def test_version(duramen_alone: Run) -> None:
    assert duramen_alone("version").out.startswith(f"duramen {version('duramen')}")


def test_no_command_and_no_such_command(duramen_alone: Run) -> None:
    assert duramen_alone().code == 2
    ended = duramen_alone("sreve")
    assert (ended.code, "sreve" in ended.err) == (2, True)
