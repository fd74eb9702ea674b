"""A directory knows under which incarnations it took part, whatever a crash leaves of the file."""

import random

import pytest

from duramen.base.errors import DirectoryUnusable
from duramen.controller.membership.incarnations import IncarnationFile
from duramen.sim.machine.disk import Crashed, MemoryFileSystem

PATH = "quorum/incarnations"


def test_what_was_tried_is_known_to_all_who_come_later() -> None:
    files = MemoryFileSystem()
    assert IncarnationFile(files).begin("a") == ()
    assert IncarnationFile(files).begin("b") == ("a",)
    IncarnationFile(files).registered("b")
    assert set(IncarnationFile(files).begin("c")) == {"a", "b"}


def test_the_registered_one_is_kept_however_many_are_tried_in_vain() -> None:
    files = MemoryFileSystem()
    file = IncarnationFile(files)
    file.begin("taken")
    file.registered("taken")
    known = [file.begin(str(number)) for number in range(300)]
    assert all("taken" in each for each in known)
    assert len(known[-1]) == 101
    assert "298" in known[-1]


def test_a_copy_knows_nothing_of_what_came_after_it() -> None:
    files = MemoryFileSystem()
    file = IncarnationFile(files)
    file.begin("a")
    copy = files.content(PATH)
    file.begin("b")
    file.registered("b")
    files.replace(PATH, copy)
    assert file.begin("c") == ("a",)


def test_a_crash_in_any_call_loses_nothing_that_was_said() -> None:
    for at in range(1, 60):
        files = MemoryFileSystem()
        said: list[str] = []
        files.crash_at = at
        try:
            for name in "abcd":
                IncarnationFile(files).begin(name)
                said.append(name)
                IncarnationFile(files).registered(name)
        except Crashed:
            pass
        files.crash(random.Random(at))
        assert set(said) <= set(IncarnationFile(files).begin("x"))


def test_a_file_that_is_damaged_is_refused() -> None:
    for damage in ("flip", "cut", "other"):
        files = MemoryFileSystem()
        IncarnationFile(files).begin("a")
        if damage == "flip":
            files.corrupt(PATH, files.open(PATH).size() - 1)
        else:
            files.replace(PATH, b"DURTRIED" if damage == "cut" else b"another file" * 3)
        with pytest.raises(DirectoryUnusable, match="quorum/incarnations"):
            IncarnationFile(files).begin("b")
