"""What a consumer wants to read: names and patterns, for itself and for brokers."""

from __future__ import annotations

import re
from typing import Any

import pytest

from karrow import errors
from karrow.aio.consuming.subscription import Subscription
from karrow.types import ClusterMetadata, TopicMetadata

NAMES = ("orders", "ORDERS", "orders-eu", "billing")


def known(*names: str) -> ClusterMetadata:
    return ClusterMetadata(topics={name: TopicMetadata(name) for name in names})


def matched(*wanted: Any) -> set[str]:
    """What a consumer finds by itself."""
    found = Subscription(wanted, remote=False)
    found.match(known(*NAMES))
    return set(found.topics)


def remote(*wanted: Any) -> str | None:
    return Subscription(wanted, remote=True).remote_pattern


def test_patterns_are_matched_as_they_were_compiled() -> None:
    assert matched(re.compile("ORDERS")) == {"ORDERS"}
    assert matched(re.compile("ORDERS", re.IGNORECASE)) == {"orders", "ORDERS"}
    assert matched(re.compile("orders # all", re.VERBOSE)) == {"orders"}
    assert matched(re.compile("(?i)OrDers"), "^billing") == {"orders", "ORDERS", "billing"}
    assert matched("^BILLING", re.compile("orders", re.IGNORECASE)) == {"orders", "ORDERS"}
    assert matched("^(b)illin(g)", re.compile(r"(o)rders\1?")) == {"billing", "orders"}
    assert matched("orders-eu", "^bil.*") == {"orders-eu", "billing"}


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (["^orders.*"], "^orders.*"),
        ([re.compile("orders", re.IGNORECASE)], "(?i:orders)"),
        ([re.compile("orders", re.ASCII)], "orders"),
        ([re.compile("(?is)orders.")], "(?is:orders.)"),
        ([re.compile("^a$", re.MULTILINE), "^b"], "(?:(?m:^a$))|(?:^b)"),
    ],
)
def test_brokers_get_one_pattern_with_its_flags(wanted: list[Any], text: str) -> None:
    assert remote(wanted) == text
    assert Subscription(wanted, remote=False).remote_pattern is None


def test_what_is_no_topic_is_refused_by_name() -> None:
    for wrong, text in [
        (42, "42 is no name"),
        (None, "None is no name"),
        (b"orders", "b'orders' is no name"),
        (["orders", 42], "42 is no name"),
        ("^(", "is no pattern"),
        (re.compile(b"orders"), "pattern of bytes"),
    ]:
        with pytest.raises(errors.ConfigError, match=re.escape(text)):
            matched(wrong)
    with pytest.raises(errors.ConfigError, match=r"re\.VERBOSE"):
        remote(re.compile("a # b", re.VERBOSE))
    with pytest.raises(errors.ConfigError, match="cannot be mixed"):
        remote("a", "^b")
