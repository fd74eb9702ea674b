"""What both clients find in the inventory by filters, and count."""

from uuid import uuid4

import pytest
from tests.client.api.conftest import Face

from duramen import errors


def test_parts_are_found_by_filters_and_counted(face: Face) -> None:
    name = uuid4().hex[:12]
    account, tenants = {"account": f"a-{name}"}, [f"{name}-1", f"{name}-2"]
    face.inventory("create_tenants", tenants, labels={"team": "blue"}, **account)
    face.inventory("update_tenant", tenants[1], labels={"team": "red"}, **account)
    for tenant in tenants:
        face.inventory("create_namespaces", tenant, ["dev", "prod"], labels={"of": tenant}, **account)
    face.inventory("create_topics", f"{tenants[0]}/dev", ["a", "b"], **account)
    face.inventory("alias", f"{tenants[1]}/prod/c", f"{tenants[0]}/dev/a", **account)
    face.inventory("create_topics", f"{tenants[1]}/prod", ["d"], **account)

    def found(method: str, *args: str, **wanted: str) -> list[str]:
        return [one.name for one in face.inventory(method, *args, **wanted, **account)]

    assert found("tenants", glob="*-2") == found("tenants", label="team=red") == tenants[1:]
    assert found("namespaces", pattern="d.*") == ["dev", "dev"]
    assert found("namespaces", label=f"of={tenants[1]}") == found("namespaces", tenants[1]) == ["dev", "prod"]
    for wanted, names in (({"kind": "alias"}, ["c"]), ({"label": "team=red"}, ["c", "d"]), ({"durability": "os"}, [])):
        page = face.inventory("search_page", **wanted, **account)
        assert (wanted, [one.name for one in page.topics]) == (wanted, names)
    shown = face.inventory("account", account["account"])
    assert (shown.tenants, shown.namespaces, shown.topics) == (2, 4, 3)
    assert [one.name for one in face.inventory("accounts", prefix=account["account"])] == [account["account"]]
    tenant = face.inventory("tenant", tenants[1], **account)
    assert (tenant.namespaces, tenant.topics) == (2, 1)
    for method, args, wanted, error in (
        ("search_page", ["a/b/c"], {}, errors.RequestInvalid),
        ("search_page", ["a/"], {}, errors.RequestInvalid),
        ("search_page", ["/a"], {}, errors.RequestInvalid),
        ("subscribe", ["a/"], {}, errors.RequestInvalid),
        ("subscribe", ["a//b"], {}, errors.RequestInvalid),
        ("search_page", [], {"kind": "x"}, errors.RequestInvalid),
        ("tenants", [], {"glob": "["}, errors.GlobInvalid), ("account", ["nobody"], {}, errors.AccountNotFound),
    ):  # fmt: skip
        with pytest.raises(error):
            face.inventory(method, *args, **wanted)
