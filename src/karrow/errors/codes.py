"""Kafka's error codes as classes. Made by tools/make_errors.py; do not edit."""

from __future__ import annotations

from karrow.errors.tree import (
    AuthorizationError,
    BrokerError,
    Fenced,
    StaleCoordinator,
    StaleMetadata,
)


class UnknownServerError(BrokerError):
    """Unknown server error."""

    code = -1
    name = "UNKNOWN_SERVER_ERROR"


class OffsetOutOfRange(BrokerError):
    """Offset out of range."""

    code = 1
    name = "OFFSET_OUT_OF_RANGE"


class CorruptMessage(BrokerError):
    """Corrupt message."""

    code = 2
    name = "CORRUPT_MESSAGE"
    retriable = True


class UnknownTopicOrPartition(StaleMetadata, BrokerError):
    """Unknown topic or partition."""

    code = 3
    name = "UNKNOWN_TOPIC_OR_PARTITION"
    retriable = True


class InvalidFetchSize(BrokerError):
    """Invalid fetch size."""

    code = 4
    name = "INVALID_FETCH_SIZE"


class LeaderNotAvailable(StaleMetadata, BrokerError):
    """Leader not available."""

    code = 5
    name = "LEADER_NOT_AVAILABLE"
    retriable = True


class NotLeaderOrFollower(StaleMetadata, BrokerError):
    """Not leader or follower."""

    code = 6
    name = "NOT_LEADER_OR_FOLLOWER"
    retriable = True


class RequestTimedOut(BrokerError):
    """Request timed out."""

    code = 7
    name = "REQUEST_TIMED_OUT"
    retriable = True


class BrokerNotAvailable(StaleMetadata, BrokerError):
    """Broker not available."""

    code = 8
    name = "BROKER_NOT_AVAILABLE"


class ReplicaNotAvailable(StaleMetadata, BrokerError):
    """Replica not available."""

    code = 9
    name = "REPLICA_NOT_AVAILABLE"
    retriable = True


class MessageTooLarge(BrokerError):
    """Message too large."""

    code = 10
    name = "MESSAGE_TOO_LARGE"


class StaleControllerEpoch(BrokerError):
    """Stale controller epoch."""

    code = 11
    name = "STALE_CONTROLLER_EPOCH"


class OffsetMetadataTooLarge(BrokerError):
    """Offset metadata too large."""

    code = 12
    name = "OFFSET_METADATA_TOO_LARGE"


class NetworkException(StaleMetadata, BrokerError):
    """Network exception."""

    code = 13
    name = "NETWORK_EXCEPTION"
    retriable = True


class CoordinatorLoadInProgress(StaleCoordinator, BrokerError):
    """Coordinator load in progress."""

    code = 14
    name = "COORDINATOR_LOAD_IN_PROGRESS"
    retriable = True


class CoordinatorNotAvailable(StaleCoordinator, BrokerError):
    """Coordinator not available."""

    code = 15
    name = "COORDINATOR_NOT_AVAILABLE"
    retriable = True


class NotCoordinator(StaleCoordinator, BrokerError):
    """Not coordinator."""

    code = 16
    name = "NOT_COORDINATOR"
    retriable = True


class InvalidTopicException(BrokerError):
    """Invalid topic exception."""

    code = 17
    name = "INVALID_TOPIC_EXCEPTION"


class RecordListTooLarge(BrokerError):
    """Record list too large."""

    code = 18
    name = "RECORD_LIST_TOO_LARGE"


class NotEnoughReplicas(BrokerError):
    """Not enough replicas."""

    code = 19
    name = "NOT_ENOUGH_REPLICAS"
    retriable = True


class NotEnoughReplicasAfterAppend(BrokerError):
    """Not enough replicas after append."""

    code = 20
    name = "NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    retriable = True


class InvalidRequiredAcks(BrokerError):
    """Invalid required acks."""

    code = 21
    name = "INVALID_REQUIRED_ACKS"


class IllegalGeneration(BrokerError):
    """Illegal generation."""

    code = 22
    name = "ILLEGAL_GENERATION"


class InconsistentGroupProtocol(BrokerError):
    """Inconsistent group protocol."""

    code = 23
    name = "INCONSISTENT_GROUP_PROTOCOL"


class InvalidGroupId(BrokerError):
    """Invalid group id."""

    code = 24
    name = "INVALID_GROUP_ID"


class UnknownMemberId(BrokerError):
    """Unknown member id."""

    code = 25
    name = "UNKNOWN_MEMBER_ID"


class InvalidSessionTimeout(BrokerError):
    """Invalid session timeout."""

    code = 26
    name = "INVALID_SESSION_TIMEOUT"


class RebalanceInProgress(BrokerError):
    """Rebalance in progress."""

    code = 27
    name = "REBALANCE_IN_PROGRESS"


class InvalidCommitOffsetSize(BrokerError):
    """Invalid commit offset size."""

    code = 28
    name = "INVALID_COMMIT_OFFSET_SIZE"


class TopicAuthorizationFailed(AuthorizationError, BrokerError):
    """Topic authorization failed."""

    code = 29
    name = "TOPIC_AUTHORIZATION_FAILED"


class GroupAuthorizationFailed(AuthorizationError, BrokerError):
    """Group authorization failed."""

    code = 30
    name = "GROUP_AUTHORIZATION_FAILED"


class ClusterAuthorizationFailed(AuthorizationError, BrokerError):
    """Cluster authorization failed."""

    code = 31
    name = "CLUSTER_AUTHORIZATION_FAILED"


class InvalidTimestamp(BrokerError):
    """Invalid timestamp."""

    code = 32
    name = "INVALID_TIMESTAMP"


class UnsupportedSaslMechanism(BrokerError):
    """Unsupported sasl mechanism."""

    code = 33
    name = "UNSUPPORTED_SASL_MECHANISM"


class IllegalSaslState(BrokerError):
    """Illegal sasl state."""

    code = 34
    name = "ILLEGAL_SASL_STATE"


class UnsupportedVersion(BrokerError):
    """Unsupported version."""

    code = 35
    name = "UNSUPPORTED_VERSION"


class TopicAlreadyExists(BrokerError):
    """Topic already exists."""

    code = 36
    name = "TOPIC_ALREADY_EXISTS"


class InvalidPartitions(BrokerError):
    """Invalid partitions."""

    code = 37
    name = "INVALID_PARTITIONS"


class InvalidReplicationFactor(BrokerError):
    """Invalid replication factor."""

    code = 38
    name = "INVALID_REPLICATION_FACTOR"


class InvalidReplicaAssignment(BrokerError):
    """Invalid replica assignment."""

    code = 39
    name = "INVALID_REPLICA_ASSIGNMENT"


class InvalidConfig(BrokerError):
    """Invalid config."""

    code = 40
    name = "INVALID_CONFIG"


class NotController(StaleMetadata, BrokerError):
    """Not controller."""

    code = 41
    name = "NOT_CONTROLLER"
    retriable = True


class InvalidRequest(BrokerError):
    """Invalid request."""

    code = 42
    name = "INVALID_REQUEST"


class UnsupportedForMessageFormat(BrokerError):
    """Unsupported for message format."""

    code = 43
    name = "UNSUPPORTED_FOR_MESSAGE_FORMAT"


class PolicyViolation(BrokerError):
    """Policy violation."""

    code = 44
    name = "POLICY_VIOLATION"


class OutOfOrderSequenceNumber(BrokerError):
    """Out of order sequence number."""

    code = 45
    name = "OUT_OF_ORDER_SEQUENCE_NUMBER"


class DuplicateSequenceNumber(BrokerError):
    """Duplicate sequence number."""

    code = 46
    name = "DUPLICATE_SEQUENCE_NUMBER"


class InvalidProducerEpoch(Fenced, BrokerError):
    """Invalid producer epoch."""

    code = 47
    name = "INVALID_PRODUCER_EPOCH"


class InvalidTxnState(BrokerError):
    """Invalid txn state."""

    code = 48
    name = "INVALID_TXN_STATE"


class InvalidProducerIdMapping(BrokerError):
    """Invalid producer id mapping."""

    code = 49
    name = "INVALID_PRODUCER_ID_MAPPING"


class InvalidTransactionTimeout(BrokerError):
    """Invalid transaction timeout."""

    code = 50
    name = "INVALID_TRANSACTION_TIMEOUT"


class ConcurrentTransactions(BrokerError):
    """Concurrent transactions."""

    code = 51
    name = "CONCURRENT_TRANSACTIONS"
    retriable = True


class TransactionCoordinatorFenced(BrokerError):
    """Transaction coordinator fenced."""

    code = 52
    name = "TRANSACTION_COORDINATOR_FENCED"


class TransactionalIdAuthorizationFailed(AuthorizationError, BrokerError):
    """Transactional id authorization failed."""

    code = 53
    name = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


class SecurityDisabled(BrokerError):
    """Security disabled."""

    code = 54
    name = "SECURITY_DISABLED"


class OperationNotAttempted(BrokerError):
    """Operation not attempted."""

    code = 55
    name = "OPERATION_NOT_ATTEMPTED"


class KafkaStorageError(StaleMetadata, BrokerError):
    """Kafka storage error."""

    code = 56
    name = "KAFKA_STORAGE_ERROR"
    retriable = True


class LogDirNotFound(BrokerError):
    """Log dir not found."""

    code = 57
    name = "LOG_DIR_NOT_FOUND"


class SaslAuthenticationFailed(BrokerError):
    """Sasl authentication failed."""

    code = 58
    name = "SASL_AUTHENTICATION_FAILED"


class UnknownProducerId(BrokerError):
    """Unknown producer id."""

    code = 59
    name = "UNKNOWN_PRODUCER_ID"


class ReassignmentInProgress(BrokerError):
    """Reassignment in progress."""

    code = 60
    name = "REASSIGNMENT_IN_PROGRESS"


class DelegationTokenAuthDisabled(BrokerError):
    """Delegation token auth disabled."""

    code = 61
    name = "DELEGATION_TOKEN_AUTH_DISABLED"


class DelegationTokenNotFound(BrokerError):
    """Delegation token not found."""

    code = 62
    name = "DELEGATION_TOKEN_NOT_FOUND"


class DelegationTokenOwnerMismatch(BrokerError):
    """Delegation token owner mismatch."""

    code = 63
    name = "DELEGATION_TOKEN_OWNER_MISMATCH"


class DelegationTokenRequestNotAllowed(BrokerError):
    """Delegation token request not allowed."""

    code = 64
    name = "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"


class DelegationTokenAuthorizationFailed(AuthorizationError, BrokerError):
    """Delegation token authorization failed."""

    code = 65
    name = "DELEGATION_TOKEN_AUTHORIZATION_FAILED"


class DelegationTokenExpired(BrokerError):
    """Delegation token expired."""

    code = 66
    name = "DELEGATION_TOKEN_EXPIRED"


class InvalidPrincipalType(BrokerError):
    """Invalid principal type."""

    code = 67
    name = "INVALID_PRINCIPAL_TYPE"


class NonEmptyGroup(BrokerError):
    """Non empty group."""

    code = 68
    name = "NON_EMPTY_GROUP"


class GroupIdNotFound(BrokerError):
    """Group id not found."""

    code = 69
    name = "GROUP_ID_NOT_FOUND"


class FetchSessionIdNotFound(BrokerError):
    """Fetch session id not found."""

    code = 70
    name = "FETCH_SESSION_ID_NOT_FOUND"
    retriable = True


class InvalidFetchSessionEpoch(BrokerError):
    """Invalid fetch session epoch."""

    code = 71
    name = "INVALID_FETCH_SESSION_EPOCH"
    retriable = True


class ListenerNotFound(StaleMetadata, BrokerError):
    """Listener not found."""

    code = 72
    name = "LISTENER_NOT_FOUND"
    retriable = True


class TopicDeletionDisabled(BrokerError):
    """Topic deletion disabled."""

    code = 73
    name = "TOPIC_DELETION_DISABLED"


class FencedLeaderEpoch(StaleMetadata, BrokerError):
    """Fenced leader epoch."""

    code = 74
    name = "FENCED_LEADER_EPOCH"
    retriable = True


class UnknownLeaderEpoch(BrokerError):
    """Unknown leader epoch."""

    code = 75
    name = "UNKNOWN_LEADER_EPOCH"
    retriable = True


class UnsupportedCompressionType(BrokerError):
    """Unsupported compression type."""

    code = 76
    name = "UNSUPPORTED_COMPRESSION_TYPE"


class StaleBrokerEpoch(BrokerError):
    """Stale broker epoch."""

    code = 77
    name = "STALE_BROKER_EPOCH"


class OffsetNotAvailable(BrokerError):
    """Offset not available."""

    code = 78
    name = "OFFSET_NOT_AVAILABLE"
    retriable = True


class MemberIdRequired(BrokerError):
    """Member id required."""

    code = 79
    name = "MEMBER_ID_REQUIRED"


class PreferredLeaderNotAvailable(StaleMetadata, BrokerError):
    """Preferred leader not available."""

    code = 80
    name = "PREFERRED_LEADER_NOT_AVAILABLE"
    retriable = True


class GroupMaxSizeReached(BrokerError):
    """Group max size reached."""

    code = 81
    name = "GROUP_MAX_SIZE_REACHED"


class FencedInstanceId(Fenced, BrokerError):
    """Fenced instance id."""

    code = 82
    name = "FENCED_INSTANCE_ID"


class EligibleLeadersNotAvailable(StaleMetadata, BrokerError):
    """Eligible leaders not available."""

    code = 83
    name = "ELIGIBLE_LEADERS_NOT_AVAILABLE"
    retriable = True


class ElectionNotNeeded(StaleMetadata, BrokerError):
    """Election not needed."""

    code = 84
    name = "ELECTION_NOT_NEEDED"
    retriable = True


class NoReassignmentInProgress(BrokerError):
    """No reassignment in progress."""

    code = 85
    name = "NO_REASSIGNMENT_IN_PROGRESS"


class GroupSubscribedToTopic(BrokerError):
    """Group subscribed to topic."""

    code = 86
    name = "GROUP_SUBSCRIBED_TO_TOPIC"


class InvalidRecord(BrokerError):
    """Invalid record."""

    code = 87
    name = "INVALID_RECORD"


class UnstableOffsetCommit(BrokerError):
    """Unstable offset commit."""

    code = 88
    name = "UNSTABLE_OFFSET_COMMIT"
    retriable = True


class ThrottlingQuotaExceeded(BrokerError):
    """Throttling quota exceeded."""

    code = 89
    name = "THROTTLING_QUOTA_EXCEEDED"
    retriable = True


class ProducerFenced(Fenced, BrokerError):
    """Producer fenced."""

    code = 90
    name = "PRODUCER_FENCED"


class ResourceNotFound(BrokerError):
    """Resource not found."""

    code = 91
    name = "RESOURCE_NOT_FOUND"


class DuplicateResource(BrokerError):
    """Duplicate resource."""

    code = 92
    name = "DUPLICATE_RESOURCE"


class UnacceptableCredential(BrokerError):
    """Unacceptable credential."""

    code = 93
    name = "UNACCEPTABLE_CREDENTIAL"


class InconsistentVoterSet(BrokerError):
    """Inconsistent voter set."""

    code = 94
    name = "INCONSISTENT_VOTER_SET"


class InvalidUpdateVersion(BrokerError):
    """Invalid update version."""

    code = 95
    name = "INVALID_UPDATE_VERSION"


class FeatureUpdateFailed(BrokerError):
    """Feature update failed."""

    code = 96
    name = "FEATURE_UPDATE_FAILED"


class PrincipalDeserializationFailure(BrokerError):
    """Principal deserialization failure."""

    code = 97
    name = "PRINCIPAL_DESERIALIZATION_FAILURE"


class SnapshotNotFound(BrokerError):
    """Snapshot not found."""

    code = 98
    name = "SNAPSHOT_NOT_FOUND"


class PositionOutOfRange(BrokerError):
    """Position out of range."""

    code = 99
    name = "POSITION_OUT_OF_RANGE"


class UnknownTopicId(StaleMetadata, BrokerError):
    """Unknown topic id."""

    code = 100
    name = "UNKNOWN_TOPIC_ID"
    retriable = True


class DuplicateBrokerRegistration(BrokerError):
    """Duplicate broker registration."""

    code = 101
    name = "DUPLICATE_BROKER_REGISTRATION"


class BrokerIdNotRegistered(BrokerError):
    """Broker id not registered."""

    code = 102
    name = "BROKER_ID_NOT_REGISTERED"


class InconsistentTopicId(StaleMetadata, BrokerError):
    """Inconsistent topic id."""

    code = 103
    name = "INCONSISTENT_TOPIC_ID"
    retriable = True


class InconsistentClusterId(BrokerError):
    """Inconsistent cluster id."""

    code = 104
    name = "INCONSISTENT_CLUSTER_ID"


class TransactionalIdNotFound(BrokerError):
    """Transactional id not found."""

    code = 105
    name = "TRANSACTIONAL_ID_NOT_FOUND"


class FetchSessionTopicIdError(BrokerError):
    """Fetch session topic id error."""

    code = 106
    name = "FETCH_SESSION_TOPIC_ID_ERROR"
    retriable = True


class IneligibleReplica(BrokerError):
    """Ineligible replica."""

    code = 107
    name = "INELIGIBLE_REPLICA"


class NewLeaderElected(BrokerError):
    """New leader elected."""

    code = 108
    name = "NEW_LEADER_ELECTED"


class OffsetMovedToTieredStorage(BrokerError):
    """Offset moved to tiered storage."""

    code = 109
    name = "OFFSET_MOVED_TO_TIERED_STORAGE"


class FencedMemberEpoch(BrokerError):
    """Fenced member epoch."""

    code = 110
    name = "FENCED_MEMBER_EPOCH"


class UnreleasedInstanceId(BrokerError):
    """Unreleased instance id."""

    code = 111
    name = "UNRELEASED_INSTANCE_ID"


class UnsupportedAssignor(BrokerError):
    """Unsupported assignor."""

    code = 112
    name = "UNSUPPORTED_ASSIGNOR"


class StaleMemberEpoch(BrokerError):
    """Stale member epoch."""

    code = 113
    name = "STALE_MEMBER_EPOCH"


class MismatchedEndpointType(BrokerError):
    """Mismatched endpoint type."""

    code = 114
    name = "MISMATCHED_ENDPOINT_TYPE"


class UnsupportedEndpointType(BrokerError):
    """Unsupported endpoint type."""

    code = 115
    name = "UNSUPPORTED_ENDPOINT_TYPE"


class UnknownControllerId(BrokerError):
    """Unknown controller id."""

    code = 116
    name = "UNKNOWN_CONTROLLER_ID"


class UnknownSubscriptionId(BrokerError):
    """Unknown subscription id."""

    code = 117
    name = "UNKNOWN_SUBSCRIPTION_ID"


class TelemetryTooLarge(BrokerError):
    """Telemetry too large."""

    code = 118
    name = "TELEMETRY_TOO_LARGE"


class InvalidRegistration(BrokerError):
    """Invalid registration."""

    code = 119
    name = "INVALID_REGISTRATION"


class TransactionAbortable(BrokerError):
    """Transaction abortable."""

    code = 120
    name = "TRANSACTION_ABORTABLE"


class InvalidRecordState(BrokerError):
    """Invalid record state."""

    code = 121
    name = "INVALID_RECORD_STATE"


class ShareSessionNotFound(BrokerError):
    """Share session not found."""

    code = 122
    name = "SHARE_SESSION_NOT_FOUND"
    retriable = True


class InvalidShareSessionEpoch(BrokerError):
    """Invalid share session epoch."""

    code = 123
    name = "INVALID_SHARE_SESSION_EPOCH"
    retriable = True


class FencedStateEpoch(BrokerError):
    """Fenced state epoch."""

    code = 124
    name = "FENCED_STATE_EPOCH"


class InvalidVoterKey(BrokerError):
    """Invalid voter key."""

    code = 125
    name = "INVALID_VOTER_KEY"


class DuplicateVoter(BrokerError):
    """Duplicate voter."""

    code = 126
    name = "DUPLICATE_VOTER"


class VoterNotFound(BrokerError):
    """Voter not found."""

    code = 127
    name = "VOTER_NOT_FOUND"


class InvalidRegularExpression(BrokerError):
    """Invalid regular expression."""

    code = 128
    name = "INVALID_REGULAR_EXPRESSION"


class RebootstrapRequired(BrokerError):
    """Rebootstrap required."""

    code = 129
    name = "REBOOTSTRAP_REQUIRED"


class StreamsInvalidTopology(BrokerError):
    """Streams invalid topology."""

    code = 130
    name = "STREAMS_INVALID_TOPOLOGY"


class StreamsInvalidTopologyEpoch(BrokerError):
    """Streams invalid topology epoch."""

    code = 131
    name = "STREAMS_INVALID_TOPOLOGY_EPOCH"


class StreamsTopologyFenced(BrokerError):
    """Streams topology fenced."""

    code = 132
    name = "STREAMS_TOPOLOGY_FENCED"


class ShareSessionLimitReached(BrokerError):
    """Share session limit reached."""

    code = 133
    name = "SHARE_SESSION_LIMIT_REACHED"
    retriable = True


class GroupDeletionFailed(BrokerError):
    """Group deletion failed."""

    code = 134
    name = "GROUP_DELETION_FAILED"


class StreamsTopologyDescriptionUpdateFailed(BrokerError):
    """Streams topology description update failed."""

    code = 135
    name = "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED"


class ControllerIdNotRegistered(BrokerError):
    """Controller id not registered."""

    code = 136
    name = "CONTROLLER_ID_NOT_REGISTERED"


BY_CODE: dict[int, type[BrokerError]] = {
    kind.code: kind
    for kind in (
        UnknownServerError,
        OffsetOutOfRange,
        CorruptMessage,
        UnknownTopicOrPartition,
        InvalidFetchSize,
        LeaderNotAvailable,
        NotLeaderOrFollower,
        RequestTimedOut,
        BrokerNotAvailable,
        ReplicaNotAvailable,
        MessageTooLarge,
        StaleControllerEpoch,
        OffsetMetadataTooLarge,
        NetworkException,
        CoordinatorLoadInProgress,
        CoordinatorNotAvailable,
        NotCoordinator,
        InvalidTopicException,
        RecordListTooLarge,
        NotEnoughReplicas,
        NotEnoughReplicasAfterAppend,
        InvalidRequiredAcks,
        IllegalGeneration,
        InconsistentGroupProtocol,
        InvalidGroupId,
        UnknownMemberId,
        InvalidSessionTimeout,
        RebalanceInProgress,
        InvalidCommitOffsetSize,
        TopicAuthorizationFailed,
        GroupAuthorizationFailed,
        ClusterAuthorizationFailed,
        InvalidTimestamp,
        UnsupportedSaslMechanism,
        IllegalSaslState,
        UnsupportedVersion,
        TopicAlreadyExists,
        InvalidPartitions,
        InvalidReplicationFactor,
        InvalidReplicaAssignment,
        InvalidConfig,
        NotController,
        InvalidRequest,
        UnsupportedForMessageFormat,
        PolicyViolation,
        OutOfOrderSequenceNumber,
        DuplicateSequenceNumber,
        InvalidProducerEpoch,
        InvalidTxnState,
        InvalidProducerIdMapping,
        InvalidTransactionTimeout,
        ConcurrentTransactions,
        TransactionCoordinatorFenced,
        TransactionalIdAuthorizationFailed,
        SecurityDisabled,
        OperationNotAttempted,
        KafkaStorageError,
        LogDirNotFound,
        SaslAuthenticationFailed,
        UnknownProducerId,
        ReassignmentInProgress,
        DelegationTokenAuthDisabled,
        DelegationTokenNotFound,
        DelegationTokenOwnerMismatch,
        DelegationTokenRequestNotAllowed,
        DelegationTokenAuthorizationFailed,
        DelegationTokenExpired,
        InvalidPrincipalType,
        NonEmptyGroup,
        GroupIdNotFound,
        FetchSessionIdNotFound,
        InvalidFetchSessionEpoch,
        ListenerNotFound,
        TopicDeletionDisabled,
        FencedLeaderEpoch,
        UnknownLeaderEpoch,
        UnsupportedCompressionType,
        StaleBrokerEpoch,
        OffsetNotAvailable,
        MemberIdRequired,
        PreferredLeaderNotAvailable,
        GroupMaxSizeReached,
        FencedInstanceId,
        EligibleLeadersNotAvailable,
        ElectionNotNeeded,
        NoReassignmentInProgress,
        GroupSubscribedToTopic,
        InvalidRecord,
        UnstableOffsetCommit,
        ThrottlingQuotaExceeded,
        ProducerFenced,
        ResourceNotFound,
        DuplicateResource,
        UnacceptableCredential,
        InconsistentVoterSet,
        InvalidUpdateVersion,
        FeatureUpdateFailed,
        PrincipalDeserializationFailure,
        SnapshotNotFound,
        PositionOutOfRange,
        UnknownTopicId,
        DuplicateBrokerRegistration,
        BrokerIdNotRegistered,
        InconsistentTopicId,
        InconsistentClusterId,
        TransactionalIdNotFound,
        FetchSessionTopicIdError,
        IneligibleReplica,
        NewLeaderElected,
        OffsetMovedToTieredStorage,
        FencedMemberEpoch,
        UnreleasedInstanceId,
        UnsupportedAssignor,
        StaleMemberEpoch,
        MismatchedEndpointType,
        UnsupportedEndpointType,
        UnknownControllerId,
        UnknownSubscriptionId,
        TelemetryTooLarge,
        InvalidRegistration,
        TransactionAbortable,
        InvalidRecordState,
        ShareSessionNotFound,
        InvalidShareSessionEpoch,
        FencedStateEpoch,
        InvalidVoterKey,
        DuplicateVoter,
        VoterNotFound,
        InvalidRegularExpression,
        RebootstrapRequired,
        StreamsInvalidTopology,
        StreamsInvalidTopologyEpoch,
        StreamsTopologyFenced,
        ShareSessionLimitReached,
        GroupDeletionFailed,
        StreamsTopologyDescriptionUpdateFailed,
        ControllerIdNotRegistered,
    )
}
