"""The Python clients and kcat, through the whole list."""

from typing import Final

import pytest
from tests.compat.behaviours import BEHAVIOURS
from tests.compat.clients import PYTHON
from tests.compat.conftest import Company
from tests.compat.staging import Behaviour

_SHORT: Final = ("confluent-kafka", "kcat")
_COMPANIES: Final = [one if one.name in _SHORT else pytest.param(one, marks=pytest.mark.long) for one in PYTHON]


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda one: one.name)
@pytest.mark.parametrize("company", _COMPANIES, ids=lambda one: one.name, indirect=True)
def test_it_behaves(company: Company, behaviour: Behaviour) -> None:
    company.show(behaviour)
