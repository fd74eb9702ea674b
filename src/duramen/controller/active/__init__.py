"""The active controller: decides requests, proposes events, and answers once they are committed."""
