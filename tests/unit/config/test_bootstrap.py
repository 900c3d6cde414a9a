"""Bootstrap servers in every form, and addresses that cannot be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrow.config.bootstrap import Address, Servers, is_address, resolve
from karrow.errors import ConfigError


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("b1", [("b1", 9092)]),
        ("b1:9093,b2", [("b1", 9093), ("b2", 9092)]),
        (" b1:1 , b2 ", [("b1", 1), ("b2", 9092)]),
        ("b1,,b2,", [("b1", 9092), ("b2", 9092)]),
        ("[::1]:9094", [("::1", 9094)]),
        ("[fe80::1%eth0]", [("fe80::1%eth0", 9092)]),
        ("2001:db8::1", [("2001:db8::1", 9092)]),
        (["b1:1", "b2:2,b3"], [("b1", 1), ("b2", 2), ("b3", 9092)]),
        ([("b1", 1), ("b2", "2")], [("b1", 1), ("b2", 2)]),
        (("b1", 1), [("b1", 1)]),
        (("b1", "b2"), [("b1", 9092), ("b2", 9092)]),
        (lambda: ["b1"], [("b1", 9092)]),
        ("b1,b1:9092,b1", [("b1", 9092)]),
        ("my_broker.internal.", [("my_broker.internal.", 9092)]),
    ],
)
def test_servers_are_read(servers: Servers, expected: list[tuple[str, int]]) -> None:
    assert list(resolve(servers)) == expected


def test_a_callable_is_called_at_each_use() -> None:
    answers = iter(["b1", "b2"])
    assert [resolve(lambda: next(answers)) for _ in range(2)] == [
        (Address("b1", 9092),),
        (Address("b2", 9092),),
    ]


@pytest.mark.parametrize(
    ("servers", "problem"),
    [
        ("", "names no server"),
        ([], "names no server"),
        (" , ", "names no server"),
        ("b1:x", "'x' is no port"),
        ("b1:0", "port"),
        ("b1:65536", "port"),
        ("b1:99999999999999", "is no port"),
        ("b1:-1", "is no port"),
        ("b1:٣", "is no port"),
        ("b 1", "no host name"),
        ("b1/x", "no host name"),
        (":9092", "no host name"),
        ("a:b:c", "too many colons"),
        ("[::1", "odd bracket"),
        ("[::1]9092", "odd bracket"),
        ("SASL_SSL://b1:9092", "is a URL"),
        (b"b1:9092", "cannot be a bytes"),
        (5, "cannot be a int"),
        ([5], r"no \(host, port\)"),
        ([("b1", None)], r"no \(host, port\)"),
        ("x" * 300, "no host name"),
    ],
)
def test_what_is_no_address_is_refused_by_name(servers: Servers, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        resolve(servers)


def test_credentials_in_a_server_are_refused_without_being_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("alice:hunter2@b1:9092")
    assert "hunter2" not in str(caught.value)
    assert "sasl=" in str(caught.value)


@given(st.text(max_size=300))
def test_any_text_is_addresses_or_a_config_error(text: str) -> None:
    try:
        addresses = resolve(text)
    except ConfigError:
        return
    assert addresses
    assert all(is_address(*address) for address in addresses)


@given(
    st.lists(
        st.tuples(st.from_regex(r"[a-z][a-z0-9]{0,20}", fullmatch=True), st.integers(1, 65535))
    )
)
def test_text_of_addresses_reads_back(pairs: list[tuple[str, int]]) -> None:
    addresses = [Address(*pair) for pair in pairs]
    if addresses:
        assert list(resolve(",".join(map(str, addresses)))) == list(dict.fromkeys(addresses))


@pytest.mark.parametrize(
    "host", ["", "b 1", "b1\n", "b1/../x", "user@b1", "-b1", "b1\0", "x" * 256, "bücher"]
)
def test_lying_hosts_are_no_addresses(host: str) -> None:
    assert not is_address(host, 9092)


@pytest.mark.parametrize("port", [-1, 0, 65536, 2**31])
def test_lying_ports_are_no_addresses(port: int) -> None:
    assert not is_address("b1", port)
