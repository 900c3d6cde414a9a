"""Real Apache Kafka brokers on loopback, started from Maven artifacts.

with KafkaCluster("4.3.1", nodes=3) as cluster:
    cluster.bootstrap("SASL_SSL"), cluster.tls.ca
    cluster.node(2).kill()
"""

from __future__ import annotations

from tests.brokers.artifacts import NEWEST, OLDER, RELEASES
from tests.brokers.cluster import KafkaCluster
from tests.brokers.connection import RawConnection
from tests.brokers.node import KafkaNode
from tests.brokers.process import BrokerDiedError
from tests.brokers.zookeeper import ZooKeeper

__all__ = [
    "NEWEST",
    "OLDER",
    "RELEASES",
    "BrokerDiedError",
    "KafkaCluster",
    "KafkaNode",
    "RawConnection",
    "ZooKeeper",
]
