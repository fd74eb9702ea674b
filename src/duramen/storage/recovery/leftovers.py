"""Files that belong to no log: finds them, and removes them once nothing needs them. Blocking."""

from duramen.storage.log.empty_log import hold_place, is_held, placeholder
from duramen.storage.log.log import Log, log_directory
from duramen.storage.maintenance.delayed_delete import DELETED_ENDING
from duramen.storage.maintenance.segment_rewrite import NEW_ENDING
from duramen.storage.recovery.logs import LogsFound
from duramen.storage.recovery.rescue import is_unclaimed, log_ids
from duramen.storage.segment.segment import parse_segment_name

__all__ = ["clear_unknown", "hold_places", "remove_let_go"]


def clear_unknown(found: LogsFound) -> None:
    """Mark files without a log for removal after the replay: of deleted logs, of segments that nothing names.

    A power loss may have restored them, after a log's end or before its start. If the WAL or the checkpoint may have
    lost their names, they are kept. Raises OSError.
    """
    for log_id in log_ids(found.files):
        found.next_log_id = max(found.next_log_id, log_id + 1)
        if log_id in found.logs:
            continue
        if found.believing:
            found.rescue.keep(log_id)
        elif not is_unclaimed(found.files, log_id):
            found.let_go_directories.append(log_directory(log_id))
    for log in found.logs.values():
        if not found.files.exists(log.directory):
            continue
        names = found.files.names(log.directory)
        found.let_go_files += (f"{log.directory}/{name}" for name in names if name.endswith(DELETED_ENDING))
        if found.believing:
            continue
        known = {path.rpartition("/")[2] for path in _used(log)}
        if any(name.endswith(NEW_ENDING) for name in names):
            found.files.sync_directory(log.directory)  # the name of a segment's new file may not be durable
        for name in names:
            stem, _, ending = name.rpartition(".")
            unknown = ending in ("log", "index") and parse_segment_name(stem) is not None and stem not in known
            if unknown or name.endswith(NEW_ENDING):
                found.let_go_files.append(f"{log.directory}/{name}")


def remove_let_go(found: LogsFound) -> None:
    """Remove the marked files: from now on nothing needs them, whatever a power loss does to the WAL's tail."""
    used = {path for log in found.logs.values() for path in _used(log)}
    for path in found.let_go_files:
        if path.rpartition(".")[0] not in used:  # a truncated file may have been created again
            found.files.unlink(path)
    for directory in found.let_go_directories:
        found.files.remove_directory(directory)


def hold_places(found: LogsFound) -> None:
    """Create the files that record the ends of logs without records: their predecessors may be removed now."""
    losing = {path.rpartition("/")[0] for path in found.let_go_files}
    for log in found.logs.values():
        last = placeholder(log)
        # A power loss may have left names without content; after a kill, the content may not be durable.
        if last is not None and (log.directory in losing or not is_held(found.files, last)):
            hold_place(found.files, log, last)


def _used(log: Log) -> set[str]:
    used = {segment.path for segment in log.segments if segment.size}
    last = placeholder(log)
    return used if last is None else used | {last.path}
