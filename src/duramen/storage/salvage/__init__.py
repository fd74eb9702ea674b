"""What is left of a damaged directory, put together."""
