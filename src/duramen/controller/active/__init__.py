"""The active controller: decides requests, proposes events, and responds once they are committed."""
