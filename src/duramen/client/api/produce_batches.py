"""Joins calls of `produce` of several tasks: those that arrive during a request travel together in the next."""

import asyncio
from functools import partial

from duramen.base.errors import ClientClosed, DuramenError
from duramen.client.api.records import Place
from duramen.client.api.thread import OwnThread
from duramen.client.api.writer import ProduceJob, RecordWriter

__all__ = ["BatchedProduce"]


class BatchedProduce:
    """Writes jobs in a thread of its own, all waiting ones together."""

    def __init__(self, kafka: str, timeout_s: float, codec: int) -> None:
        self._kafka = kafka
        self._timeout_s = timeout_s
        self._codec = codec
        self._writer = self._new_writer()
        self._thread = OwnThread("duramen-produce")
        self._waiting: list[tuple[ProduceJob, asyncio.Future[None]]] = []
        self._current: list[tuple[ProduceJob, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None

    def _new_writer(self) -> RecordWriter:
        return RecordWriter(self._kafka, timeout_s=self._timeout_s, codec=self._codec)

    async def write(self, job: ProduceJob) -> list[Place]:
        """The places of its records. Raises the reason if some are not stored."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.append((job, done))
        if self._task is None:
            self._task = loop.create_task(self._run())
        try:
            await done
        except asyncio.CancelledError:
            if self._current and all(other.cancelled() for _, other in self._current):
                self._writer.interrupt.set()
            raise
        return job.result()

    async def _run(self) -> None:
        while self._waiting:
            self._current = [(job, done) for job, done in self._waiting if not done.done()]
            self._waiting = []
            jobs = [job for job, _ in self._current]
            failed: BaseException | None = None
            try:
                await self._thread.run(partial(self._writer.write, jobs), self._writer.interrupt)
            except DuramenError as error:
                failed = error
            for _, done in self._current:
                if not done.done():
                    done.set_result(None) if failed is None else done.set_exception(failed)
            self._current = []
            if self._writer.interrupt.is_set:
                self._writer = self._new_writer()
        self._task = None

    async def close(self) -> None:
        """End calls in progress and close."""
        self._writer.interrupt.set()
        task = self._task
        if task is not None:
            for _, done in self._waiting:
                if not done.done():
                    done.set_exception(
                        ClientClosed("the client was closed before this was written: nothing was stored")
                    )
            await asyncio.wait([task])
        self._writer.close()
        self._thread.close()
