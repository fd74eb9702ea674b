"""What nodes say to each other of the states of share partitions: positions that are never kept are refused."""

import pytest

from duramen.base.errors import RequestInvalid
from duramen.coordinators.share.requests import states_of
from duramen.delivery.spans import DeliveryPhase


@pytest.mark.parametrize("wrong", [(5, 4, DeliveryPhase.AVAILABLE, 0), (4, 5, DeliveryPhase.ACQUIRED, 0), (4, 5, 9, 0)])
def test_positions_that_are_never_kept_are_refused(wrong: tuple[int, int, int, int]) -> None:
    with pytest.raises(RequestInvalid, match="cannot be in phase"):
        states_of((wrong,))
