"""Letting records go: retention, deleted records, deleted logs, a cut end."""
