"""Removal of records: retention, deleted records, deleted logs, truncation."""
