"""Why Spark did not start, out of what Java wrote."""

from duramen.spark.launching.applications import why

IN_JAVA = """WARNING: Using incubator modules
26/11/22 21:08:16 WARN Utils: Your hostname, vm, resolves to a loopback address
Exception in thread "main" org.apache.spark.SparkException: Master must either be yarn or start with spark
\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)
"""
NO_JAVA = """Invalid maximum heap size: -Xmx3zz
Error: Could not create the Java Virtual Machine.
Error: A fatal exception has occurred. Program will exit.
"""
CALLED = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: Could not parse Master URL: 'local[x]'
\tat org.apache.spark.SparkContext$.createTaskScheduler(SparkContext.scala:3391)
"""
INSIDE = """Error while instantiating 'org.apache.spark.sql.internal.SessionStateBuilder':

JVM stacktrace:
java.lang.IllegalArgumentException: Error while instantiating 'org.apache.spark.sql.internal.SessionStateBuilder':
\tat org.apache.spark.sql.classic.SparkSession$.instantiateSessionState(SparkSession.scala:10)
Caused by: java.lang.IllegalArgumentException: [INVALID] spark.sql.shuffle.partitions should be int. SQLSTATE: 22022
\tat org.apache.spark.internal.config.ConfigHelpers$.toNumber(ConfigBuilder.scala:37)
"""
NO_MASTER = """26/11/22 21:14:10 WARN StandaloneAppClient$ClientEndpoint: Failed to connect to master 127.0.0.1:9
org.apache.spark.SparkException: Exception thrown in awaitResult:
Caused by: java.net.ConnectException: Connection refused
26/11/22 21:14:50 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: All masters are unresponsive!
"""


def test_why_spark_did_not_start() -> None:
    assert why(IN_JAVA) == "Master must either be yarn or start with spark"
    assert why(NO_JAVA) == "Invalid maximum heap size: -Xmx3zz"
    assert why(CALLED) == "Could not parse Master URL: 'local[x]'"
    assert why(INSIDE) == "spark.sql.shuffle.partitions should be int"
    assert why(NO_MASTER) == "All masters are unresponsive!"
    assert why("[JAVA_GATEWAY_EXITED] Java gateway process exited.\n") == "Java gateway process exited"
    assert why("") == "it does not say why"
