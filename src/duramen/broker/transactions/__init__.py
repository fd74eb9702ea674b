"""The coordinator of transactions at work: their log, their ends, and what Spark's queries decide."""
