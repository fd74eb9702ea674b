"""A pipeline as data: from YAML or Python to a checked model."""
