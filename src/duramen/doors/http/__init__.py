"""The HTTP door: health, metrics, and provisioning of streams."""
