"""The messages' tables by what they are about; the notation is that of `schema`. Data only."""
