"""The coordinator of transactions and of batches of Spark queries."""
