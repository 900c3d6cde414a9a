"""Access control: bindings, filters over them, and the numbers Kafka gives to their parts."""

from __future__ import annotations

from dataclasses import dataclass

from karrow.types.numbers import Numbered

__all__ = [
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "PatternType",
    "ResourceType",
    "operations_in",
]


class ResourceType(Numbered):
    """What an ACL protects."""

    __module__ = "karrow"

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(Numbered):
    """How a resource's name is compared; ANY and MATCH are for filters."""

    __module__ = "karrow"

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(Numbered):
    """What is allowed or denied."""

    __module__ = "karrow"

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(Numbered):
    """Allowed or denied."""

    __module__ = "karrow"

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True)
class AclBinding:
    """One rule: who may do what to which resource, from where.

    >>> AclBinding(ResourceType.TOPIC, "orders", "User:alice", AclOperation.READ).host
    '*'
    """

    __module__ = "karrow"

    resource_type: ResourceType
    resource_name: str
    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    host: str = "*"
    pattern_type: PatternType = PatternType.LITERAL


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which rules to describe or delete; None and ANY match everything."""

    __module__ = "karrow"

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    host: str | None = None
    pattern_type: PatternType = PatternType.ANY


NOT_ASKED = -(2**31)


def operations_in(bits: int) -> frozenset[str] | None:
    """The operations in a field of bits, None when the broker was not asked for them (KIP-430).

    >>> sorted(operations_in(1 << 3 | 1 << 8))
    ['describe', 'read']
    """
    if bits == NOT_ASKED:
        return None
    return frozenset(str(operation) for operation in AclOperation if bits >> operation & 1)
