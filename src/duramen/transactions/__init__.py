"""The coordinator's side of transactions (KIP-98, KIP-360, KIP-890): states, transitions, records.

Pure: takes requests and the time, and returns the new state of the transaction.
"""
