"""Lag of streaming queries: their progress is committed to a consumer group, where every Kafka tool shows it.

The group is the source's `kafka.group.id`, otherwise the query's name. A source does not know its query's name, and
learns of a micro-batch only when Spark plans the next one; so this listens to the session. Spark reports progress once
the micro-batch is in the checkpoint's commit log: the committed offsets are never ahead of the checkpoint, and include
the last micro-batch. Nothing is read from the group: the query continues from its checkpoint.

Java's events are read as they come: PySpark's own listener class queries Java for every part of an event, at each
micro-batch.
"""

import atexit
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from threading import Lock
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from duramen.base.errors import DuramenError
from duramen.client import BrokerCluster, Consumer
from duramen.spark.launching.java_compiler import compiled
from duramen.spark.options import Options
from duramen.spark.read.offsets import SourceOffsets
from duramen.spark.read.selection import Selection

__all__ = ["LagListener", "SourceDescriber", "report_lag"]

_log = logging.getLogger("duramen.spark")

_FORMAT: Final = "duramen"
_CLASS: Final = "DescribedSources"
_MOST_SECONDS: Final = 5.0
"""The timeout of requests to a broker: one thread handles the progress of all queries of a session."""

_LAST_MS: Final = 2000
"""The time that the end of this process waits for events that Java has queued."""


class _Source(NamedTuple):
    """A source of a query, and the group for its lag."""

    group: str
    selection: Selection
    cluster: BrokerCluster


class LagListener:
    """Commits the progress of a session's queries. Errors are logged, and stop nothing.

    Events are Java's, those of Spark's class `StreamingQueryListener`.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._describer = SourceDescriber(session)
        self._lock = Lock()
        self._sources: dict[str, list[_Source]] = {}  # by the query's run id
        self._committed: dict[tuple[str, str], object] = {}  # the last commits, by group and streams

    def onQueryStarted(self, event: Any) -> None:
        """Describe its sources, and note their groups. Spark plans the query only after this returns."""
        name = event.name()
        try:
            sources = []
            for relation, options in _relations_of(self._session, event.id().toString()):
                selection = Selection(options)
                self._describer.describe(relation, f"Duramen[{selection.description}]")
                if group := options.text("kafka.group.id") or name:
                    sources.append(_Source(group, selection, _cluster_of(options)))
        except (DuramenError, Py4JError, AttributeError, TypeError) as error:
            # Errors of ours are raised by the source itself; others mean that Spark's internals are different.
            _log.warning("the lag of query %s will not be shown: %s", name or event.id().toString(), error)
            return
        if sources:
            with self._lock:
                self._sources[event.runId().toString()] = sources

    def onQueryProgress(self, event: Any) -> None:
        """Everything up to the end offsets of its sources is processed."""
        with self._lock:
            if not self._sources:
                return  # without a call to Java: this runs at every micro-batch
            progress = event.progress()
            sources = self._sources.get(progress.runId().toString(), [])
            for one in progress.sources() if sources else ():
                self._commit(sources, one.endOffset())

    def _commit(self, sources: list[_Source], text: str | None) -> None:
        try:
            document = json.loads(text or "")
            offsets = SourceOffsets.from_json(document)
        except (ValueError, TypeError, DuramenError):
            return  # a source of another kind
        for source in sources:
            if offsets.at and all(source.selection.names(name) for name in offsets.ids):
                key = source.group, ",".join(sorted(offsets.ids))
                if self._committed.get(key) != document and _stored(source, offsets):
                    self._committed[key] = document
                return

    def onQueryIdle(self, event: Any) -> None:
        """There is no new progress."""

    def onQueryTerminated(self, event: Any) -> None:
        """Close its connections."""
        with self._lock:
            for source in self._sources.pop(event.runId().toString(), []):
                source.cluster.close()

    class Java:
        """The Java interface; py4j requires this name."""

        implements: Final = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]


def _stored(source: _Source, offsets: SourceOffsets) -> bool:
    try:
        Consumer(source.cluster).commit(source.group, offsets.at)
    except DuramenError as error:
        _log.warning("group %s: the offsets could not be committed: %s", source.group, error)
        return False
    return True


def _relations_of(session: SparkSession, query_id: str) -> Iterator[tuple[Any, Options]]:
    """The query's sources of our format with their options, which only Spark's plan of it has."""
    query: Any = session.streams.get(query_id)
    leaves = query._jsq.streamingQuery().analyzedPlan().collectLeaves()
    for place in range(leaves.size()):
        leaf = leaves.apply(place)
        if leaf.getClass().getSimpleName() == "StreamingRelationV2" and leaf.sourceName() == _FORMAT:
            given: Mapping[str, str] = dict(leaf.extraOptions().asCaseSensitiveMap())
            yield leaf, Options(given, "stream")


def _cluster_of(options: Options) -> BrokerCluster:
    timeout_s = (options.number("kafka.request.timeout.ms") or 0) / 1000
    client_id = options.text("kafka.client.id")
    return BrokerCluster(
        options.text("kafka.bootstrap.servers"), client_id=client_id, timeout_s=min(_MOST_SECONDS, timeout_s)
    )


_listening: set[tuple[str, int]] = set()


def report_lag(session: SparkSession) -> None:
    """Show the lag of this session's streaming queries from now on; a second call has no effect."""
    # Several Python objects may be one session in Java.
    inside: Any = session._jsparkSession
    key = session.sparkContext.applicationId, inside.hashCode()
    if key not in _listening:
        _listening.add(key)
        start_callbacks: Any = ensure_callback_server_started
        start_callbacks(session.sparkContext._gateway)
        jvm: Any = session.sparkContext._jvm
        listener = jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(LagListener(session))
        inside.streams().addListener(listener)
        atexit.register(_stop_listening, inside, listener)


def _stop_listening(inside: Any, listener: Any) -> None:
    """Before this process ends: Java would report an error for each event without a listener."""
    with suppress(Py4JError, OSError):
        inside.streams().removeListener(listener)
        inside.sparkContext().listenerBus().waitUntilEmpty(_LAST_MS)  # its last events


class SourceDescriber:
    """Describes the sources of a session's queries, in their progress: Python sources have no description.

    It does nothing on a Spark that its Java class does not support.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._java: Any = None
        self._is_compiled = False

    def describe(self, relation: Any, description: str) -> None:
        """Describe the source of `relation`, a leaf of a query's plan, before Spark plans the query."""
        if not self._is_compiled:
            self._java, self._is_compiled = compiled(self._session, _CLASS), True
        if self._java is not None:
            with suppress(Py4JError):
                self._java.describe(relation, description)
