"""The coordinator's side of transactions (KIP-98, KIP-360, KIP-890): states, what leads from one to the next, records.

Pure: it is handed requests and the time, and says what the transaction is then.
"""
