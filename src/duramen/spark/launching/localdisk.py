"""Hadoop's local file system without external programs and checksum files.

The checkpoint of a micro-batch is two files, each with a checksum file: four runs of `chmod`. Hadoop has no setting for
either.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from duramen.spark.launching.java_compiler import compiled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DISK_CLASS", "quicken_local_disk"]

DISK_CLASS: Final = "FilesWithoutPrograms"
"""The replacement class."""


def quicken_local_disk(session: "SparkSession") -> None:
    """Install it in the Java of a session, if Hadoop's own file system serves the local disk."""
    from py4j.protocol import Py4JError

    jvm: Any = session.sparkContext._jvm
    with suppress(Py4JError):
        files = jvm.org.apache.hadoop.fs.FileSystem.getLocal(session.sparkContext._jsc.hadoopConfiguration())
        files.setWriteChecksum(False)
        if files.getRaw().getClass().getName() != "org.apache.hadoop.fs.RawLocalFileSystem":
            return  # already installed, or the user's choice
        instead = compiled(session, DISK_CLASS)
        if instead is not None:
            instead.replaceIn(files)
