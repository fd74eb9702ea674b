"""The messages' tables by subject, in the notation of `schema`. Data only."""
