"""What Spark says at length becomes one line."""

from duramen.spark.pipelines.definition.model import Text
from duramen.spark.pipelines.definition.problems import SourcePlace
from duramen.spark.pipelines.reasons import placed, plain, reason

FROM_OURS = """[STREAM_FAILED] Query [id = e, runId = 6] terminated with exception: \
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform initialOffset: \
duramen.base.errors.StreamNotFound: there is no stream nothere
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
"""
FROM_A_FUNCTION = """[STREAM_FAILED] Query [id = f, runId = f] terminated with exception: \
[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred. Reason: Return Message: Traceback (most recent call last):
  File "x.py", line 26, in bad
duramen.base.errors.TableForeign: the table is
 SQLSTATE: 39000 SQLSTATE: XXKST
"""
FROM_PYTHON = """x terminated with exception: Job aborted: Traceback (most recent call last):
  File "x.py", line 1, in f
OSError: [Errno 28] No space left on device
"""


def test_why_a_query_ended() -> None:
    assert reason(FROM_OURS, "c") == ("StreamNotFound", "there is no stream nothere")
    assert reason(FROM_A_FUNCTION, "c") == ("TableForeign", "the table is")
    assert reason(FROM_PYTHON, "c") == ("", "OSError: [Errno 28] No space left on device")
    assert reason("[STREAM_FAILED] Query q terminated with exception: Job aborted due to x SQLSTATE: XXKST", "c") == (
        "",
        "Job aborted due to x",
    )
    assert reason("", "c") == ("", "")


def test_a_full_disk_has_a_place() -> None:
    assert reason(
        "[STREAM_FAILED] Query q terminated with exception: java.io.IOException: No space left on device", "c"
    ) == (
        "",
        "no space left on the device, of the checkpoint c or of Spark's own files (spark.local.dir)",
    )


def test_what_is_wrong_with_sql() -> None:
    said = "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'x'. SQLSTATE: 42601 (line 2, pos 13)\n\n== SQL ==\n"
    text = Text("a\nb", SourcePlace(7, 10), SourcePlace(8, 7), 6)
    assert plain(said) == "Syntax error at or near 'x'."
    assert placed(said, text) == SourcePlace(9, 20)
    assert placed("no x; line 1 pos 2;\n'Project", text) == SourcePlace(8, 9)
    assert placed("it says nothing of a place", text) == SourcePlace(7, 10)
