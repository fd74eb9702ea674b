"""A view on its way to the disk and back: what the jobs of one view do with its files. Blocking."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from duramen.base.errors import CheckpointInvalid
from duramen.base.ports import FileSystem
from duramen.keyed.checkpoint import LogPositions, encode, newest, restore
from duramen.keyed.kernel import Kernel
from duramen.keyed.pagefiles import (
    CheckedPart,
    PageFiles,
    check_files,
    read_checkpoints,
    remove_checkpoints,
    write_checkpoint,
)
from duramen.keyed.prev import PAGE_RECORDS
from duramen.keyed.view import KeyedView

__all__ = ["VIEWS_DIRECTORY", "LoadedView", "ViewFiles"]

VIEWS_DIRECTORY: Final = "keyed"


class LoadedView(NamedTuple):
    """A view, restored or empty, and what was wrong with checkpoints that are not used."""

    view: KeyedView
    wrong: list[str]


class ViewFiles:
    """The files of one view: pages, and a checkpoint of two generations."""

    def __init__(self, files: FileSystem, directory: str, page_records: int = PAGE_RECORDS) -> None:
        self.directory = directory
        self._page_records = page_records
        self._files = files
        self._pages: PageFiles | None = None
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
                view = restore(found, kernel, self._pages, page_records=self._page_records)
            except CheckpointInvalid as error:
                wrong.append(str(error))
            else:
                self._generation = found.generation
                self._needed = found.pages[0].number if found.pages else found.next_page
                self._pages.sweep(self._needed, found.next_page)
                return LoadedView(view, wrong)
        self.remove()
        self._pages = PageFiles(self._files, self.directory)
        self._generation = self._needed = 0
        view = KeyedView(kernel, log.start_offset, secret, self._pages, page_records=self._page_records)
        return LoadedView(view, wrong)

    def save(self, view: KeyedView, log: LogPositions) -> None:
        """Write a checkpoint, and remove the pages that neither it nor the one before needs."""
        if self._pages is None:
            raise AssertionError("a view is loaded before it is saved")
        self._pages.write()
        self._generation += 1
        write_checkpoint(self._files, self.directory, encode(view, log, self._generation), self._generation)
        if not self._named:
            # What lies in a directory outlives a loss of power only where its name does.
            self._files.sync_directory(VIEWS_DIRECTORY)
            self._files.sync_directory("")
            self._named = True
        next_page, written, _ = view.prev.state()
        self._pages.sweep(self._needed, next_page)
        self._needed = written[0].number if written else next_page

    def check(self) -> CheckedPart:
        """Check some more of what lies there; no bytes at the end of a round, which damage ends too."""
        if self._checking is None:
            self._checking = check_files(self._files, self.directory)
        checked = next(self._checking, CheckedPart(0))
        if not checked.size or checked.damaged:
            self._checking = None
        return checked

    def remove(self) -> None:
        """Remove everything: the checkpoints durably first, as a loss of power brings back what it likes."""
        remove_checkpoints(self._files, self.directory)
        self._files.remove_directory(self.directory)
