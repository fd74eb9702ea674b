"""Changes of the inventory by NATS request and reply, with an unmodified client."""

import json
from typing import Any

from nats.aio.client import Client
from tests.doors.nats.conftest import Api, run

from duramen.node.process import NodeProcess


def test_changes_are_asked_for_and_waited_for(nats_node: NodeProcess, api: Api, prefix: str) -> None:
    tenant = prefix[-60:].strip("-").replace(".", "-")
    api.call("POST", "/v1/tenants", {"names": [tenant]})
    namespaces = f"/v1/tenants/{tenant}/namespaces"
    api.call("POST", namespaces, {"names": ["prod"]})

    async def test(client: Client) -> None:
        async def ask(subject: str = "changes", **wish: object) -> tuple[str, Any]:
            answer = await client.request(f"$DURAMEN.I.{subject}", json.dumps(wish).encode(), timeout=30)
            return (answer.headers or {}).get("Nats-Service-Error-Code", ""), json.loads(answer.data)

        where = {"tenant": tenant, "namespace": "prod"}
        _, page = await ask(**where)
        assert page["changes"] == []
        wish = {**where, "position": page["position"], "wait_ms": 20_000}
        waiting = client.request("$DURAMEN.I.changes", json.dumps(wish).encode(), timeout=30)
        await client.flush()
        api.call("POST", f"{namespaces}/prod/topics", {"names": ["a"]})
        (change,) = json.loads((await waiting).data)["changes"]
        assert (change["kind"], change["topics"][0]["name"]) == ("topics-created", "a")
        assert (await ask(**where, position=page["position"]))[1]["changes"] == [change]
        assert (await ask(tenant="nobody"))[1]["type"] == "tenant-not-found"
        assert (await ask(**where, position="x"))[0] == "400"
        assert (await ask("nonsense"))[1]["type"] == "request-invalid"
        assert (await ask(nonsense=1))[1]["type"] == "request-invalid"

    run(test, nats_node.nats)
