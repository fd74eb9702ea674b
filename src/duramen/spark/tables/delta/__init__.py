"""Tables in Delta format."""
