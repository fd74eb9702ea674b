"""PySpark's daemon, which forks Python workers: workers end silently when Spark closes their connection."""

__all__: list[str] = []

if __name__ == "__main__":
    from pyspark import daemon  # not importable on Windows, where Spark has no daemon

    from duramen.spark.hangups import end_workers_quietly

    end_workers_quietly(daemon)
    daemon.manager()
