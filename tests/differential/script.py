"""A seeded sequence of raw requests: valid ones, ones at the border, and ones that no broker may take."""

from tests.differential.cluster import ClusterSteps
from tests.differential.committing import Deleting
from tests.differential.configs import Configs
from tests.differential.consumer_groups import ConsumerGroupSteps
from tests.differential.drawing import TOPICS, TRANSACTIONS, Drawing, Family, Step
from tests.differential.groups import Groups
from tests.differential.quotas import Quotas
from tests.differential.records import Records
from tests.differential.share_groups import ShareGroupSteps
from tests.differential.shares import PARTITIONS, SHARED, Shares
from tests.differential.topics import Topics, learn_topics, topic_wish
from tests.differential.transactions import Transactions

from duramen.codec.kafka.versions import ApiKey

__all__ = ["Script"]


class Script:
    """Draws steps; remembers what it has asked for, so that most of what it draws makes sense."""

    def __init__(self, seed: int, began_ms: int) -> None:
        """Records have timestamps from `began_ms` on."""
        draw = Drawing(seed, began_ms)
        self._chance = draw.chance
        self._groups = draw.groups
        self._transactions = Transactions(draw)
        self._share_groups, self._shares = ShareGroupSteps(draw), Shares(draw)
        families: list[Family] = [
            Topics(draw), Records(draw), Configs(draw), Groups(draw), Deleting(draw), self._transactions, Quotas(draw),
            ClusterSteps(draw), ConsumerGroupSteps(draw), self._share_groups, self._shares,
        ]  # fmt: skip
        self._making = [one for family in families for one in family.making()]

    def begin(self) -> list[Step]:
        """What every sequence begins with."""
        emptied = {"topic_names": [*TOPICS, "absent", "strict", SHARED], "timeout_ms": 30_000}
        topics = [topic_wish(name, 3 if name == "alpha" else 1) for name in TOPICS[:3]]
        topics.append(topic_wish(SHARED, PARTITIONS))
        topics.append(topic_wish("strict", 1, [{"name": "min.insync.replicas", "value": "2"}]))
        wish = {"topics": topics, "timeout_ms": 30_000, "validate_only": False}
        steps = [
            Step(ApiKey.DELETE_TOPICS, 5, emptied, settle=True),
            Step(ApiKey.CREATE_TOPICS, 7, wish, learn_topics, settle=True),
        ]
        for kind, keys in ((0, self._groups), (1, TRANSACTIONS)):
            steps += [Step(ApiKey.FIND_COORDINATOR, 3, {"key": key, "key_type": kind}) for key in keys]
        steps += [*self._share_groups.begin(), *self._shares.begin()]
        return steps + [self._transactions.init(transaction, 4) for transaction in ("", *TRANSACTIONS)]

    def next(self) -> Step:
        """The next step."""
        weights = [weight for weight, _ in self._making]
        ((_, make),) = self._chance.choices(self._making, weights)
        return make()
