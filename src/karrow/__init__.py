"""Kafka for Python and PySpark, at Arrow speed.

Public names load on first touch: importing karrow starts no thread and imports neither the kernel
nor pyarrow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from karrow.version import __version__

if TYPE_CHECKING:
    from karrow import config as config
    from karrow import errors as errors
    from karrow import events as events
    from karrow import records as records
    from karrow import spark as spark
    from karrow import types as types
    from karrow import wire as wire
    from karrow.aio._delivery import Delivery as Delivery
    from karrow.aio.admin import AsyncAdmin as AsyncAdmin
    from karrow.aio.client import AsyncClient as AsyncClient
    from karrow.aio.consumer import AsyncConsumer as AsyncConsumer
    from karrow.aio.groups.assignors import custom_assignor as custom_assignor
    from karrow.aio.producer import AsyncProducer as AsyncProducer
    from karrow.aio.producing.bulk import BulkDelivery as BulkDelivery
    from karrow.aio.producing.stats import BrokerStats as BrokerStats
    from karrow.aio.producing.stats import ProducerStats as ProducerStats
    from karrow.aio.producing.transaction import AsyncTransaction as AsyncTransaction
    from karrow.broker.clock import ManualClock as ManualClock
    from karrow.broker.embedded import AsyncBroker as AsyncBroker
    from karrow.broker.threaded import Broker as Broker
    from karrow.config import TLS as TLS
    from karrow.config import ClientConfig as ClientConfig
    from karrow.config import ConsumerConfig as ConsumerConfig
    from karrow.config import MskIam as MskIam
    from karrow.config import OAuthBearer as OAuthBearer
    from karrow.config import Plain as Plain
    from karrow.config import ProducerConfig as ProducerConfig
    from karrow.config import Scram as Scram
    from karrow.config import Secret as Secret
    from karrow.config import Token as Token
    from karrow.config import WorkerConfig as WorkerConfig
    from karrow.config import sasl as sasl
    from karrow.net import retry as retry
    from karrow.records import Record as Record
    from karrow.sync.admin import Admin as Admin
    from karrow.sync.client import Client as Client
    from karrow.sync.consumer import Consumer as Consumer
    from karrow.sync.producer import Producer as Producer
    from karrow.sync.reading import read_arrow as read_arrow
    from karrow.sync.transaction import Transaction as Transaction
    from karrow.types import AbortedTransaction as AbortedTransaction
    from karrow.types import AclBinding as AclBinding
    from karrow.types import AclFilter as AclFilter
    from karrow.types import AclOperation as AclOperation
    from karrow.types import AclPermission as AclPermission
    from karrow.types import BrokerInfo as BrokerInfo
    from karrow.types import ClusterDescription as ClusterDescription
    from karrow.types import ClusterMetadata as ClusterMetadata
    from karrow.types import CommittedOffset as CommittedOffset
    from karrow.types import ConfigChange as ConfigChange
    from karrow.types import ConfigEntry as ConfigEntry
    from karrow.types import ConfigResource as ConfigResource
    from karrow.types import ConfigSource as ConfigSource
    from karrow.types import ConfigType as ConfigType
    from karrow.types import Coordinator as Coordinator
    from karrow.types import CreatedTopic as CreatedTopic
    from karrow.types import ElectionResult as ElectionResult
    from karrow.types import FetchResult as FetchResult
    from karrow.types import GroupAssignment as GroupAssignment
    from karrow.types import GroupDescription as GroupDescription
    from karrow.types import GroupListing as GroupListing
    from karrow.types import GroupMember as GroupMember
    from karrow.types import GroupMetadata as GroupMetadata
    from karrow.types import Health as Health
    from karrow.types import HealthState as HealthState
    from karrow.types import JoinedGroup as JoinedGroup
    from karrow.types import MemberDescription as MemberDescription
    from karrow.types import NewPartitions as NewPartitions
    from karrow.types import NewTopic as NewTopic
    from karrow.types import Node as Node
    from karrow.types import Offset as Offset
    from karrow.types import OffsetResult as OffsetResult
    from karrow.types import OffsetSpec as OffsetSpec
    from karrow.types import PartitionMetadata as PartitionMetadata
    from karrow.types import PatternType as PatternType
    from karrow.types import ProducerState as ProducerState
    from karrow.types import RecordMetadata as RecordMetadata
    from karrow.types import ResourceType as ResourceType
    from karrow.types import ScramInfo as ScramInfo
    from karrow.types import ScramMechanism as ScramMechanism
    from karrow.types import SendSummary as SendSummary
    from karrow.types import TopicMetadata as TopicMetadata
    from karrow.types import TopicPartition as TopicPartition
    from karrow.types import TransactionDescription as TransactionDescription
    from karrow.types import TransactionListing as TransactionListing
    from karrow.types import UserScramDescription as UserScramDescription
    from karrow.workers.actor import WorkerState as WorkerState
    from karrow.workers.aio import AsyncWorkerGroup as AsyncWorkerGroup
    from karrow.workers.aio import GroupState as GroupState
    from karrow.workers.aio import Worker as Worker
    from karrow.workers.callbacks import CallbackGroup as CallbackGroup
    from karrow.workers.callbacks import start_consumer as start_consumer
    from karrow.workers.ending import Ending as Ending
    from karrow.workers.ending import EndReason as EndReason
    from karrow.workers.group import WorkerGroup as WorkerGroup
    from karrow.workers.group import run_group as run_group
    from karrow.workers.handler import Commit as Commit
    from karrow.workers.handler import Handler as Handler
    from karrow.workers.handler import Stop as Stop
    from karrow.workers.manual import CommitId as CommitId

__all__ = [
    "TLS",
    "AbortedTransaction",
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "Admin",
    "AsyncAdmin",
    "AsyncBroker",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncTransaction",
    "AsyncWorkerGroup",
    "Broker",
    "BrokerInfo",
    "BrokerStats",
    "BulkDelivery",
    "CallbackGroup",
    "Client",
    "ClientConfig",
    "ClusterDescription",
    "ClusterMetadata",
    "Commit",
    "CommitId",
    "CommittedOffset",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConfigType",
    "Consumer",
    "ConsumerConfig",
    "Coordinator",
    "CreatedTopic",
    "Delivery",
    "ElectionResult",
    "EndReason",
    "Ending",
    "FetchResult",
    "GroupAssignment",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupMetadata",
    "GroupState",
    "Handler",
    "Health",
    "HealthState",
    "JoinedGroup",
    "ManualClock",
    "MemberDescription",
    "MskIam",
    "NewPartitions",
    "NewTopic",
    "Node",
    "OAuthBearer",
    "Offset",
    "OffsetResult",
    "OffsetSpec",
    "PartitionMetadata",
    "PatternType",
    "Plain",
    "Producer",
    "ProducerConfig",
    "ProducerState",
    "ProducerStats",
    "Record",
    "RecordMetadata",
    "ResourceType",
    "Scram",
    "ScramInfo",
    "ScramMechanism",
    "Secret",
    "SendSummary",
    "Stop",
    "Token",
    "TopicMetadata",
    "TopicPartition",
    "Transaction",
    "TransactionDescription",
    "TransactionListing",
    "UserScramDescription",
    "Worker",
    "WorkerConfig",
    "WorkerGroup",
    "WorkerState",
    "__version__",
    "config",
    "custom_assignor",
    "errors",
    "events",
    "read_arrow",
    "records",
    "retry",
    "run_group",
    "sasl",
    "spark",
    "start_consumer",
    "types",
    "wire",
]

_ROOMS = frozenset({"config", "errors", "events", "records", "spark", "types", "wire"})
# Public names that are not values of karrow.types.
_HOMES = {
    "Admin": "karrow.sync.admin",
    "AsyncAdmin": "karrow.aio.admin",
    "AsyncBroker": "karrow.broker.embedded",
    "AsyncClient": "karrow.aio.client",
    "AsyncConsumer": "karrow.aio.consumer",
    "AsyncProducer": "karrow.aio.producer",
    "AsyncTransaction": "karrow.aio.producing.transaction",
    "AsyncWorkerGroup": "karrow.workers.aio",
    "Broker": "karrow.broker.threaded",
    "BrokerStats": "karrow.aio.producing.stats",
    "BulkDelivery": "karrow.aio.producing.bulk",
    "CallbackGroup": "karrow.workers.callbacks",
    "Client": "karrow.sync.client",
    "ClientConfig": "karrow.config",
    "Commit": "karrow.workers.handler",
    "CommitId": "karrow.workers.manual",
    "Consumer": "karrow.sync.consumer",
    "ConsumerConfig": "karrow.config",
    "custom_assignor": "karrow.aio.groups.assignors",
    "Delivery": "karrow.aio._delivery",
    "Ending": "karrow.workers.ending",
    "EndReason": "karrow.workers.ending",
    "GroupState": "karrow.workers.aio",
    "Handler": "karrow.workers.handler",
    "ManualClock": "karrow.broker.clock",
    "MskIam": "karrow.config",
    "OAuthBearer": "karrow.config",
    "Plain": "karrow.config",
    "Producer": "karrow.sync.producer",
    "ProducerConfig": "karrow.config",
    "ProducerStats": "karrow.aio.producing.stats",
    "Record": "karrow.records",
    "read_arrow": "karrow.sync.reading",
    "retry": "karrow.net",
    "run_group": "karrow.workers.group",
    "sasl": "karrow.config",
    "Scram": "karrow.config",
    "Secret": "karrow.config",
    "start_consumer": "karrow.workers.callbacks",
    "Stop": "karrow.workers.handler",
    "TLS": "karrow.config",
    "Token": "karrow.config",
    "Transaction": "karrow.sync.transaction",
    "Worker": "karrow.workers.aio",
    "WorkerConfig": "karrow.config",
    "WorkerGroup": "karrow.workers.group",
    "WorkerState": "karrow.workers.actor",
}


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return importlib.import_module(f"karrow.{name}")
    if name in __all__:
        home = importlib.import_module(_HOMES.get(name, "karrow.types"))
        value: object = getattr(home, name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'karrow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
