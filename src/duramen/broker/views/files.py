"""Loads and saves a view: the file operations of its jobs. Blocking."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from duramen.base.errors import CheckpointInvalid
from duramen.base.ports import File, FileSystem
from duramen.keyed.checkpoint import LogPositions, encode, newest, restore
from duramen.keyed.kernel import Kernel
from duramen.keyed.pagefiles import (
    CheckedPart,
    PageFiles,
    TableFiles,
    begin_checkpoint,
    check_files,
    end_checkpoint,
    read_checkpoints,
    remove_checkpoints,
)
from duramen.keyed.prev import PAGE_RECORDS
from duramen.keyed.view import KeyedView

__all__ = ["VIEWS_DIRECTORY", "LoadedView", "PreparedCheckpoint", "ViewFiles"]

VIEWS_DIRECTORY: Final = "keyed"
_ALL: Final = 1 << 63


class LoadedView(NamedTuple):
    """A view, restored or empty, and the errors of checkpoints that are not used."""

    view: KeyedView
    wrong: list[str]


class PreparedCheckpoint(NamedTuple):
    """What is synced: the pages from `first_page` to `next_page`, and these files of the table."""

    generation: int
    file: File
    first_page: int
    next_page: int
    tables: frozenset[int]


class ViewFiles:
    """The files of one view: pages, and a checkpoint of two generations."""

    def __init__(self, files: FileSystem, directory: str, page_records: int = PAGE_RECORDS) -> None:
        self.directory = directory
        self._page_records = page_records
        self._files = files
        self._pages: PageFiles | None = None
        self._tables = TableFiles(files, directory)
        self._generation = 0
        self._named = False
        self._needed = 0  # the first page that the checkpoint before needs
        self._checking: Iterator[CheckedPart] | None = None

    def load(self, kernel: Kernel, log: LogPositions, secret: bytes, *, anew: bool) -> LoadedView:
        """The view as the newest sound checkpoint has it, else an empty one from the log's start on."""
        found, wrong = None, list[str]()
        if not anew:
            found, wrong = newest(read_checkpoints(self._files, self.directory), log, kernel.hash_id)
        if found is not None:
            self._pages = PageFiles(self._files, self.directory)
            try:
                self._pages.require(page.number for page in found.pages)
                self._tables.require(part.number for part in found.filed)
                view = restore(found, kernel, self._pages, page_records=self._page_records, parts=self._tables)
            except CheckpointInvalid as error:
                wrong.append(str(error))
            else:
                self._generation = found.generation
                self._needed = found.pages[0].number if found.pages else found.next_page
                self._pages.sweep(self._needed, found.next_page)
                self._tables.sweep({part.number for part in found.filed}, _ALL)
                return LoadedView(view, wrong)
        self.remove()
        self._pages = PageFiles(self._files, self.directory)
        self._generation = self._needed = 0
        view = KeyedView(
            kernel, log.start_offset, secret, self._pages, page_records=self._page_records, parts=self._tables
        )
        return LoadedView(view, wrong)

    def save(self, view: KeyedView, log: LogPositions) -> None:
        """Write a checkpoint of the view as it is."""
        prepared = self.prepare(view, log)
        if prepared is not None:
            self.write(prepared)

    def prepare(self, view: KeyedView, log: LogPositions) -> PreparedCheckpoint | None:
        """A checkpoint of the view as it is, which is brought to the disk while the view goes on.

        None while the table is on its way into files for the first time.
        """
        if view.filed is not None and not view.filed.parts:
            return None
        self._generation += 1
        next_page, written, _ = view.prev.state()
        named = frozenset() if view.filed is None else frozenset(part.number for part in view.filed.parts)
        content = encode(view, log, self._generation)
        file = begin_checkpoint(self._files, self.directory, content, self._generation)
        return PreparedCheckpoint(self._generation, file, written[0].number if written else next_page, next_page, named)

    def write(self, prepared: PreparedCheckpoint) -> None:
        """End it, and remove the pages that neither it nor the one before needs; one is written at a time.

        Of a table in files those stay that this one names: the one before cannot be used any more.
        """
        if self._pages is None:
            raise AssertionError("a view is loaded before it is saved")
        self._pages.write(prepared.next_page)
        self._tables.sync()
        end_checkpoint(self._files, self.directory, prepared.file, prepared.generation)
        if not self._named:
            # Files in a directory survive a power loss only if the directory's own entry does.
            self._files.sync_directory(VIEWS_DIRECTORY)
            self._files.sync_directory("")
            self._named = True
        self._pages.sweep(self._needed, prepared.next_page)
        self._needed = prepared.first_page
        # Those with larger numbers are written by a round that has not ended.
        self._tables.sweep(prepared.tables, max(prepared.tables, default=_ALL))

    def check(self) -> CheckedPart:
        """Check some more of the files; no bytes at the end of a round, which damage ends too."""
        if self._checking is None:
            self._checking = check_files(self._files, self.directory)
        checked = next(self._checking, CheckedPart(0))
        if not checked.size or checked.damaged:
            self._checking = None
        return checked

    def remove(self) -> None:
        """Remove everything: the checkpoints durably first, because a power loss may restore any removed file."""
        remove_checkpoints(self._files, self.directory)
        self._files.remove_directory(self.directory)
