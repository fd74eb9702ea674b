"""Results as tables, plots and JSON, and targets."""
