"""The topic: made as facts need it, or looked at if it is there. docs/kafka.md has the reasons."""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from ingest._kafka_client import (
    REQUEST_MS,
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    TopicAlreadyExistsError,
)
from ingest.errors import BadInput
from ingest.log import MAX_ENTRY_BYTES

log = logging.getLogger(__name__)

RECORD_BYTES = MAX_ENTRY_BYTES + 1024 * 1024
"""A value of the largest size with its key, its framing, and lz4's growth on random bytes."""
_WEEK_MS = 7 * 24 * 3600 * 1000
_NEW = {
    # So many drains can share the work. Adding partitions later moves keys between them.
    "num_partitions": 4,
    "replication_factor": -1,  # the broker knows: default.replication.factor
    "configs": {
        "max.message.bytes": str(RECORD_BYTES),
        # A broker's defaults may drop records after a week; none may go before the store has it.
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
    },
}


class _Rule(NamedTuple):
    setting: str
    keeps: Callable[[str], bool]
    danger: str


_RULES = (
    _Rule(
        "max.message.bytes",
        lambda value: int(value) >= RECORD_BYTES,
        f"larger requests are refused with 413; set {RECORD_BYTES}",
    ),
    _Rule(
        "retention.ms",
        lambda value: int(value) == -1 or int(value) >= _WEEK_MS,
        "facts are lost when the store is away for longer; set a week (604800000) or more, or -1",
    ),
    _Rule(
        "retention.bytes",
        lambda value: int(value) == -1,
        "facts that the store does not have yet are lost when more than that waits; set -1",
    ),
    _Rule(
        "min.insync.replicas",
        lambda value: int(value) >= 2,
        "a fact is acknowledged when one broker has it, and lost with its disk; set 2 of 3 replicas",
    ),
    _Rule(
        "unclean.leader.election.enable",
        lambda value: value == "false",
        "a broker that lacks acknowledged facts may become the leader; set false",
    ),
)


def prepare(admin: KafkaAdminClient, topic: str) -> None:
    """The topic is there. Each setting of it that may lose an acknowledged fact is logged.

    Raises: BadInput when it is compacted; KafkaError.
    """
    if not admin.describe_topics([topic])[0]["partitions"]:
        with suppress(TopicAlreadyExistsError):
            admin.create_topics({topic: _NEW})
        admin.wait_for_topics([topic], timeout_ms=REQUEST_MS)
    asked = ConfigResource(ConfigResourceType.TOPIC, topic)
    found = admin.describe_configs([asked], config_filter="all")["topic"].get(topic, {})
    settings = {name: config["value"] for name, config in found.items()}
    if "compact" in settings.get("cleanup.policy", ""):
        raise BadInput.of(
            "log",
            f"the topic {topic} is compacted, which keeps one record of each conversation;"
            " set cleanup.policy=delete",
        )
    for rule in _RULES:
        value = settings.get(rule.setting)
        if value is not None and not rule.keeps(value):
            log.warning("topic %s has %s=%s: %s", topic, rule.setting, value, rule.danger)
