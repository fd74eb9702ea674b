"""What several tests of storage share."""

import uuid

STREAM = uuid.UUID(int=0xD0)
