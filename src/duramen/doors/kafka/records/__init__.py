"""Produce, Fetch, ListOffsets, DeleteRecords, transactions."""
