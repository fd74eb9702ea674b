"""The HTTP door: health, metrics, provisioning, and records as JSON."""
