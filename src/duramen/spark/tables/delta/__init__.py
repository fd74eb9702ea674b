"""Tables in Delta's format."""
