"""Every message in every version: our bytes are Kafka's bytes, and we read Kafka's bytes."""

from __future__ import annotations

import random

import pytest
from filling import STYLES, Style, fill
from jars import NEW_KAFKA, OLD_KAFKA, kafka_clients
from kafka_oracle import Oracle, RefusedError, UnknownError
from make_messages import definitions, valid_versions

from karrow.wire import decode, encode
from karrow.wire.table import names, schema

SEED = 20250817
ROUNDS: tuple[Style, ...] = STYLES + ("random",) * 5

Case = tuple[str, int]


def every_case() -> set[Case]:
    return {(name, version) for name in names() for version in schema(name).versions}


def compare(oracle: Oracle, case: Case) -> list[str]:
    """What differs between Kafka and us in one version of one message, or UnknownError."""
    name, version = case
    differences = []
    for number, style in enumerate(ROUNDS):
        rng = random.Random(f"{SEED} {name} {version} {number}")
        message = fill(rng, schema(name), version, style)
        label = f"{name} v{version} {style}"
        try:
            theirs = oracle.encode(schema(name), version, message)
        except RefusedError as error:
            differences.append(f"{label}: Kafka refuses {message}: {error}")
            continue
        ours = encode(name, version, message)
        if ours != theirs:
            differences.append(f"{label}: {ours.hex()} is not Kafka's {theirs.hex()}: {message}")
        elif decode(name, version, theirs) != message:
            differences.append(f"{label}: {decode(name, version, theirs)} is not {message}")
    return differences


def compare_all(release: str, cases: set[Case]) -> tuple[set[Case], list[str]]:
    """The cases the release does not have, and all differences in the others."""
    unknown, differences = set(), []
    with Oracle(release) as oracle:
        for case in sorted(cases):
            try:
                differences += compare(oracle, case)
            except UnknownError:
                unknown.add(case)
    return unknown, differences


def identity(kind: str, key: int | None, name: str) -> str:
    """An API may be renamed, its key stays."""
    return name if key is None else f"{kind} {key}"


@pytest.mark.java
def test_table_has_every_message_and_version_of_both_releases() -> None:
    known = {
        (identity(schema(name).kind, schema(name).key, name), version)
        for name, version in every_case()
    }
    for release in (NEW_KAFKA, OLD_KAFKA):
        theirs = {
            (identity(raw["type"], raw.get("apiKey"), raw["name"]), version)
            for raw in definitions(kafka_clients(release))
            for version in valid_versions(raw)
        }
        assert theirs - known == set()


@pytest.mark.java
def test_every_version_of_every_message_is_byte_for_byte_kafkas() -> None:
    rest, differences = compare_all(NEW_KAFKA, every_case())
    missing, more = compare_all(OLD_KAFKA, rest)
    assert not differences + more, "\n".join([f"seed {SEED}", *(differences + more)[:20]])
    assert not missing, f"no release has {sorted(missing)}"
