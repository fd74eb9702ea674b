"""PySpark's daemon, which forks Python workers: workers end silently when Spark closes their connection."""

__all__: list[str] = []

if __name__ == "__main__":
    from pyspark import daemon  # which cannot be imported on Windows, where Spark runs none

    from duramen.spark.hangups import end_workers_quietly

    end_workers_quietly(daemon)
    daemon.manager()
