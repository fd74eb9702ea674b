"""Tables in Iceberg's format."""
