"""What the HTTP API takes and returns, as types."""
