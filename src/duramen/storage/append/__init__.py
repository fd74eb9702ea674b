"""How batches get into logs."""
