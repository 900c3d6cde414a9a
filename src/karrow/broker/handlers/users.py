"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554)."""

from __future__ import annotations

from collections import Counter

from karrow import errors
from karrow.broker.call import Call, handles
from karrow.broker.users import MAX_ITERATIONS, MIN_ITERATIONS, SCRAM, ScramCredential
from karrow.wire.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

Described = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
Info = DescribeUserScramCredentialsResponse.CredentialInfo
Altered = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
NUMBERS = {name: number for number, name in SCRAM.items()}


@handles("DescribeUserScramCredentials")
def describe_users(
    call: Call, body: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """All users, or those that are named; a name twice, or unknown, is that name's error."""
    known = call.cluster.users.scram_users()
    wanted = [item.name for item in body.users or ()] or list(known)
    results = []
    for user, times in Counter(wanted).items():
        answer = Described(user=user)
        if times > 1:
            answer.error_code = errors.DuplicateResource.code
            answer.error_message = (
                f"Cannot describe SCRAM credentials for the same user twice: {user}"
            )
        elif user not in known:
            answer.error_code = errors.ResourceNotFound.code
            answer.error_message = (
                f"Attempt to describe a user credential that does not exist: {user}"
            )
        else:
            answer.credential_infos = [
                Info(mechanism=NUMBERS[mechanism], iterations=credential.iterations)
                for mechanism, credential in known[user].items()
            ]
        results.append(answer)
    return DescribeUserScramCredentialsResponse(results=results)


@handles("AlterUserScramCredentials")
def alter_users(
    call: Call, body: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Each user succeeds or fails as a whole.

    Brokers with a quorum take one change of a user at a time, others one of each mechanism.
    """
    pairs = [(item.name, item.mechanism) for item in body.deletions]
    pairs += [(item.name, item.mechanism) for item in body.upsertions]
    by_user = call.cluster.release.forwards
    counts = Counter((name, 0 if by_user else mechanism) for name, mechanism in pairs)
    twice = {name for (name, _), times in counts.items() if times > 1}
    results = []
    for user in dict.fromkeys(name for name, _ in pairs):
        answer = Altered(user=user, error_message=None)
        try:
            if user in twice:
                raise errors.DuplicateResource(
                    "A user credential cannot be altered twice in the same request"
                )
            _alter(call, body, user)
        except errors.BrokerError as error:
            answer.error_code, answer.error_message = error.code, error.message
        results.append(answer)
    return AlterUserScramCredentialsResponse(results=results)


def _alter(call: Call, body: AlterUserScramCredentialsRequest, user: str) -> None:
    if not user:
        raise errors.UnacceptableCredential("Username must not be empty")
    users = call.cluster.users
    changes: list[tuple[str, ScramCredential | None]] = []
    for deletion in body.deletions:
        if deletion.name == user:
            mechanism = _mechanism(deletion.mechanism)
            if users.scram(user, mechanism) is None:
                raise errors.ResourceNotFound(
                    "Attempt to delete a user credential that does not exist"
                )
            changes.append((mechanism, None))
    changes += [_credential(change) for change in body.upsertions if change.name == user]
    for mechanism, credential in changes:
        users.put(user, mechanism, credential)


def _credential(
    change: AlterUserScramCredentialsRequest.ScramCredentialUpsertion,
) -> tuple[str, ScramCredential]:
    mechanism = _mechanism(change.mechanism)
    if change.iterations < MIN_ITERATIONS:
        raise errors.UnacceptableCredential("Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        raise errors.UnacceptableCredential("Too many iterations")
    salted, salt = bytes(change.salted_password), bytes(change.salt)
    return mechanism, ScramCredential.of_salted(mechanism, salted, salt, change.iterations)


def _mechanism(number: int) -> str:
    if number not in SCRAM:
        raise errors.UnsupportedSaslMechanism("Unknown SCRAM mechanism")
    return SCRAM[number]
