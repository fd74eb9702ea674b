"""The one place that composes: settings in, a running node out."""
