"""The reason why a node belongs to no cluster yet, as one line of text. Pure."""

from collections.abc import Mapping

from duramen.raft.forming.values import ClusterProposal, FormationAttempt, FormationHello

__all__ = ["obstacle"]


def obstacle(me: FormationHello, heard: Mapping[str, FormationHello], promise: ClusterProposal | None) -> str:
    """The reason why the node with the hello `me` cannot form a cluster; empty if there is none.

    `heard` has the hello of each seed, `promise` is the promise of the node.
    """
    if me.cluster_id is not None:
        return ""
    if promise is not None:
        return _promise(promise, heard)
    return _clusters(heard) or _twice(heard) or _lists(me, heard) or _missing(me, heard) or _promises(me, heard)


def _promise(promise: ClusterProposal, heard: Mapping[str, FormationHello]) -> str:
    proposer, cluster_id = promise.attempt.proposer, promise.attempt.cluster_id
    begun = f"the cluster {cluster_id} was begun by node {proposer.node_id} with the directory {proposer.directory_id}"
    for address, hello in sorted(heard.items()):
        if hello.cluster_id is not None:
            return (
                f"{begun}, and node {hello.sender.node_id} at {address} belongs to the cluster {hello.cluster_id}: if"
                " this node is to join that one, start it with an empty directory"
            )
    return (
        f"{begun}, which has not said yet that it is there: start it; if that directory is lost, start every seed with"
        " an empty one"
    )


def _clusters(heard: Mapping[str, FormationHello]) -> str:
    members = [(address, hello) for address, hello in sorted(heard.items()) if hello.cluster_id is not None]
    if len({hello.cluster_id for _, hello in members}) < 2:
        return ""
    each = [f"node {hello.sender.node_id} at {address} to {hello.cluster_id}" for address, hello in members]
    return f"the seeds belong to different clusters, {', '.join(each)}: name seeds of one cluster"


def _twice(heard: Mapping[str, FormationHello]) -> str:
    addresses: dict[int, tuple[str, FormationHello]] = {}
    for address, hello in sorted(heard.items()):
        node_id = hello.sender.node_id
        if node_id in addresses:
            first, other = addresses[node_id]
            both = f"the seeds {first} and {address} are"
            if other.sender == hello.sender:
                return f"{both} the same node, {node_id}: name each once"
            return f"{both} different nodes with the node id {node_id}: give each its own"
        addresses[node_id] = (address, hello)
    return ""


def _lists(me: FormationHello, heard: Mapping[str, FormationHello]) -> str:
    for address, hello in sorted(heard.items()):
        if hello.seeds != me.seeds:
            return (
                f"node {hello.sender.node_id} at {address} has the seeds {', '.join(hello.seeds)}, and this node"
                f" {', '.join(me.seeds)}: give all the same list"
            )
    return ""


def _missing(me: FormationHello, heard: Mapping[str, FormationHello]) -> str:
    missing = [address for address in me.seeds if address not in heard]
    if missing:
        return f"a cluster is formed once all seeds are there; missing: {', '.join(missing)}"
    if all(hello.sender != me.sender for hello in heard.values()):
        return "this node is none of the seeds, and no seed belongs to a cluster yet"
    return ""


def _promises(me: FormationHello, heard: Mapping[str, FormationHello]) -> str:
    proposer = min(hello.sender for hello in heard.values())
    for address, hello in sorted(heard.items()):
        if hello.promised is not None and hello.promised.proposer != proposer:
            other = hello.promised.proposer
            return (
                f"node {hello.sender.node_id} at {address} waits for the cluster {hello.promised.cluster_id}, which was"
                f" begun by node {other.node_id} with the directory {other.directory_id}"
            )
    if proposer != me.sender:
        return f"node {proposer.node_id} has not formed the cluster yet"
    attempt = FormationAttempt(me.sender, me.attempt)
    missing = [address for address, one in sorted(heard.items()) if one.promised != attempt and one.sender != proposer]
    return f"not all seeds have promised yet to form a cluster; missing: {', '.join(missing)}"
