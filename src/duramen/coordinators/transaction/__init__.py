"""The coordinator of transactions and of the batches of Spark queries."""
