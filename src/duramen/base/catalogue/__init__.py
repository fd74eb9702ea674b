"""Every setting: its name, level, type, default, bounds and description."""
