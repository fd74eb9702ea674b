"""The clients in JavaScript, through the whole list."""

import pytest
from tests.compat.behaviours import BEHAVIOURS
from tests.compat.clients import JAVASCRIPT
from tests.compat.conftest import Company
from tests.compat.staging import Behaviour


@pytest.mark.long
@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda one: one.name)
@pytest.mark.parametrize("company", JAVASCRIPT, ids=lambda one: one.name, indirect=True)
def test_it_behaves(company: Company, behaviour: Behaviour) -> None:
    company.show(behaviour)
