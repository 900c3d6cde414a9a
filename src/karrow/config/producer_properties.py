"""What each producer's property of librdkafka and of Kafka's Java client becomes here.

Those that are one option stand with that option, in its metadata; here are the rest, and what a
producer does otherwise than other clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from karrow.config.client_properties import FOREVER, NO_CLASSES

if TYPE_CHECKING:
    from karrow.config.dialects import Dialect, Meanings

__all__ = ["IGNORED", "MEANINGS", "REFUSED", "SUPPORTED", "level_property"]


def level_property(codec: str) -> str:
    """Java's name for the level of one codec; the others have no effect while this one is used."""
    return f"compression.{codec}.level"


SUPPORTED: dict[Dialect, dict[str, str]] = {
    "librdkafka": {
        "compression.codec": "compression",
        "linger.ms": "linger",
        "message.timeout.ms": "delivery_timeout",
        "request.required.acks": "acks",
    },
    "java": {level_property(codec): "compression_level" for codec in ("gzip", "lz4", "zstd")},
}

MEANINGS: dict[Dialect, dict[str, Meanings]] = {
    "librdkafka": {
        "compression.codec": {"inherit": None},
        "compression.type": {"inherit": None},
        "compression.level": {-1: None},
        "delivery.timeout.ms": {0: FOREVER},
        "message.timeout.ms": {0: FOREVER},
        # Records without a key go to one partition after the other here, whatever the hash.
        "partitioner": {
            "consistent_random": "consistent",
            "fnv1a_random": "fnv1a",
            "murmur2_random": "murmur2",
        },
    },
    "java": {
        "batch.size": {0: 1},  # a batch for each record
        level_property("gzip"): {-1: None},
    },
}

_RETRIES = "a batch is retried until delivery.timeout.ms"
_BYTES = "batches and the buffer are bounded by bytes"
_ORDER = "records go out in the order in which they were sent"

IGNORED: dict[Dialect, dict[str, str]] = {
    "librdkafka": {
        "batch.num.messages": _BYTES,
        "message.copy.max.bytes": "records are written straight into their batch",
        "message.send.max.retries": _RETRIES,
        "produce.offset.report": "offsets are always reported",
        "queue.buffering.backpressure.threshold": "max.in.flight bounds what waits for a broker",
        "queue.buffering.max.messages": _BYTES,
        "queuing.strategy": _ORDER,
        "request.timeout.ms": "brokers have socket.timeout.ms to answer",
        "retries": _RETRIES,
        "sticky.partitioning.linger.ms": "the partition changes with the batch (KIP-794)",
    },
    "java": {
        "buffer.memory.allocation.strategy": "memory is taken as records come",
        "metadata.max.idle.ms": "only the topics in use are asked for",
        "partitioner.availability.timeout.ms": "partitions without a leader are left out at once",
        "partitioner.rack.aware": "leaders are used wherever they run",
        "retries": _RETRIES,
    },
}

_DELIVERIES = "send returns a Delivery, which takes callbacks"
_FUNCTION = "give partitioner= a function"
_SERIALIZERS = "give keys and values as bytes or str"

REFUSED: dict[Dialect, dict[str, str]] = {
    "librdkafka": {
        "default_topic_conf": "give topic properties beside the others",
        "delivery.report.only.error": _DELIVERIES,
        "dr_cb": _DELIVERIES,
        "dr_msg_cb": _DELIVERIES,
        "msg_order_cmp": _ORDER,
        "partitioner_cb": _FUNCTION,
    },
    "java": {
        "key.serializer": _SERIALIZERS,
        "partitioner.class": f"{NO_CLASSES}; {_FUNCTION}",
        "partitioner.ignore.keys": "give partitioner='random', which does not look at keys",
        "transaction.two.phase.commit.enable": "karrow takes no part in transactions of others",
        "value.serializer": _SERIALIZERS,
    },
}
