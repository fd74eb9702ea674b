"""Which failures of a query end it at once."""

import pytest

from duramen.spark.pipelines.permanence import is_permanent

FAILED = "[STREAM_FAILED] Query [id = e, runId = 6] terminated with exception: "
IN_A_FUNCTION = (
    FAILED + "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the function."
    ' Reason: Return Message: Traceback (most recent call last):\n  File "x.py", line 26, in bad\n'
)
IN_A_TASK = (
    FAILED + "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times:"
    " org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
)
ENDS = "\n SQLSTATE: 39000 SQLSTATE: XXKST\n=== Streaming Query ===\n"

PERMANENT = {
    "a package": IN_A_FUNCTION
    + "pyspark.errors.exceptions.base.PySparkImportError: [PACKAGE_NOT_INSTALLED] Pandas >= 2.2.0 must be installed;"
    " however, it was not found." + ENDS,
    "a module": IN_A_TASK + "ModuleNotFoundError: No module named 'geopy'\n",
    "a name in a module": IN_A_TASK + "ImportError: cannot import name 'x' from 'y' (z.py)\n",
    "a name": IN_A_FUNCTION + "NameError: name 'json' is not defined" + ENDS,
    "a column": FAILED
    + "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `x` cannot be resolved. SQLSTATE: 42703 SQLSTATE: XXKST",
    "a format": FAILED + "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: x. SQLSTATE: 42K02 SQLSTATE: XXKST",
    "analysis of a function": IN_A_FUNCTION
    + "pyspark.errors.exceptions.captured.AnalysisException: [TABLE_OR_VIEW_NOT_FOUND] The table `x` cannot be found."
    " SQLSTATE: 42P01" + ENDS,
    "not supported": "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid output mode. SQLSTATE: 42KDE",
    "a division": FAILED
    + "org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012",
}
PASSING = {
    "a full disk": FAILED + "java.io.IOException: No space left on device",
    "a full disk in Python": IN_A_FUNCTION + "OSError: [Errno 28] No space left on device" + ENDS,
    "a connection": IN_A_TASK + "ConnectionResetError: [Errno 104] Connection reset by peer\n",
    "an executor": FAILED + "Job aborted due to stage failure: ExecutorLostFailure (executor 1 exited) SQLSTATE: XXKST",
    "a directory": FAILED + "[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03 SQLSTATE: XXKST",
    "memory": FAILED + "java.lang.OutOfMemoryError: Java heap space",
    "nothing": "",
}  # fmt: skip


@pytest.mark.parametrize("name", PERMANENT)
def test_ends_a_query_at_once(name: str) -> None:
    assert is_permanent("", PERMANENT[name])


@pytest.mark.parametrize("name", PASSING)
def test_is_tried_again(name: str) -> None:
    assert not is_permanent("", PASSING[name])


@pytest.mark.parametrize("error", ["TableForeign", "RecordsLost", "StreamNotFound", "CheckpointInvalid"])
def test_errors_of_ours(error: str) -> None:
    assert is_permanent(error, "no")


@pytest.mark.parametrize("error", ["ServerUnreachable", "StorageFull", "TableStorageFailed", "TableConflict", ""])
def test_errors_of_ours_that_pass(error: str) -> None:
    assert not is_permanent(error, "no")
