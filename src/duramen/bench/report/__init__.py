"""Results as tables, pictures and JSON, and targets."""
