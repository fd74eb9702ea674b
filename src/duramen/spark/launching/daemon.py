"""PySpark's daemon, which forks Python workers: they end without a word where Spark hangs up."""

from pyspark import daemon

from duramen.spark.hangups import end_workers_quietly

__all__: list[str] = []

end_workers_quietly(daemon)

if __name__ == "__main__":
    daemon.manager()
