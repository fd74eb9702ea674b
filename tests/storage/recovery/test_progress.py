"""How far a recovery has got, in words."""

from duramen.sim.machine.store import StoreOnDoubles
from duramen.storage.log.log import LogConfig
from duramen.storage.recovery.progress import RecoveryProgress
from duramen.storage.recovery.recovery import recover
from duramen.storage.segment.handles import Handles


def test_words() -> None:
    progress = RecoveryProgress()
    assert progress.words() == ""
    progress.begin("reading every segment", 4)
    progress.logs_done += 1
    assert progress.words() == "starting: reading every segment, 1 of 4 logs done"
    progress.begin("replaying the write-ahead log")
    progress.replay_bytes, progress.replayed_bytes = 3 << 20, 1 << 20
    assert progress.words() == "starting: replaying the write-ahead log, 1 MiB of 3 MiB of the write-ahead log replayed"


def test_a_recovery_says_how_far_it_has_got() -> None:
    doubles = StoreOnDoubles()
    for number in range(300):
        config = LogConfig(durability="os" if number % 3 == 2 else "sync", segment_bytes=64 << 10)
        doubles.append(doubles.log(number % 3, config), b"x" * 1000)
        doubles.settle()
    doubles.files.crash()
    progress = RecoveryProgress()
    seen: list[tuple[str, int, int, int, int]] = []

    def interfere(_: str, __: str, size: int) -> int:
        now = (progress.doing, progress.logs_done, progress.logs, progress.replayed_bytes, progress.replay_bytes)
        if not seen or seen[-1] != now:
            seen.append(now)
        return size

    doubles.files.interfere = interfere
    recover(doubles.files, doubles.directory.id, Handles(doubles.files, 16), doubles.findings.append, progress)
    stages = list(dict.fromkeys(one[0] for one in seen))
    assert stages[0] == "reading the checkpoint"
    assert stages[1:] == [
        "reading the write-ahead log", "replaying the write-ahead log", "syncing segments",
    ] or stages[1:] == [
        "reading the write-ahead log", "replaying the write-ahead log", "reading the segments of durability=os",
        "syncing segments",
    ]  # fmt: skip
    assert all(done <= logs and replayed <= replay for _, done, logs, replayed, replay in seen)
    assert progress.replay_bytes > 0
    assert progress.replayed_bytes == progress.replay_bytes


def test_every_segment_is_counted_where_all_are_read() -> None:
    doubles = StoreOnDoubles()
    for number in range(60):
        doubles.append(doubles.log(number % 3), b"x" * 1000)
        doubles.settle()
    doubles.restart()
    doubles.restart()
    for path in doubles.files.paths():
        if path.startswith("wal/"):
            doubles.files.unlink(path)
    doubles.files.locks.clear()
    progress = RecoveryProgress()
    most: list[tuple[int, int]] = []

    def interfere(_: str, __: str, size: int) -> int:
        if progress.doing == "reading every segment":
            most.append((progress.logs_done, progress.logs))
        return size

    doubles.files.interfere = interfere
    recover(doubles.files, doubles.directory.id, Handles(doubles.files, 16), doubles.findings.append, progress)
    assert most
    assert all(logs == 3 and 0 <= done < 3 for done, logs in most)
