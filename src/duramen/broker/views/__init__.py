"""Views of keyed streams at run time: applied, stored and read, beside the produce path."""
