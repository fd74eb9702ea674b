"""Tables in Iceberg format."""
