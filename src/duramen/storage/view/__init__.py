"""Views: rows derived from logs, with the position applied."""
