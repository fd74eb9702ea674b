"""Views of keyed streams at work: what is applied, kept on disk and asked for, beside the produce path."""
