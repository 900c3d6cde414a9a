"""Property files of both dialects."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrow.config import Scram, from_file
from karrow.config.dialects import Dialect
from karrow.config.files import parse_properties
from karrow.errors import ConfigError

CANARY = "canary-7f3a"
JAVA = r"""
# a comment
! another
bootstrap.servers = b1:9092,\
    b2:9093
client.id: caf\u00e9
security.protocol=SASL_SSL
sasl.mechanism SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
    username="alice" \
    password="canary-7f3a";
"""


def test_a_java_file_with_continued_lines_and_escapes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(JAVA)
    made = from_file(path, dialect="java", request_timeout=5.0)
    assert made.addresses() == (("b1", 9092), ("b2", 9093))
    assert made.client_id == "café"
    assert made.sasl == Scram("alice", CANARY)
    assert made.request_timeout == 5.0


def test_a_librdkafka_file_is_plain(tmp_path: Path) -> None:
    path = tmp_path / "librdkafka.conf"
    path.write_text("# x\nclient.id = a\\b=c\r\nsocket.timeout.ms=500\n")
    made = from_file(path, dialect="librdkafka")
    assert (made.client_id, made.request_timeout) == ("a\\b=c", 0.5)


@pytest.mark.parametrize("dialect", ["java", "librdkafka"])
def test_errors_give_file_and_line_but_not_its_text(dialect: Dialect, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(f"client.id=a\n\n={CANARY}\n")
    with pytest.raises(ConfigError, match=r"client\.properties: line 3") as caught:
        from_file(path, dialect=dialect)
    assert CANARY not in str(caught.value)


def test_a_name_set_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"line 2 sets sasl\.password"):
        parse_properties("sasl.password=a\nsasl.password=b\n", "librdkafka")


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.conf: No such file"):
        from_file(tmp_path / "gone.conf", dialect="java")
    (tmp_path / "latin").write_bytes(b"client.id=\xff")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        from_file(tmp_path / "latin", dialect="java")


@given(st.text())
def test_any_text_is_properties_or_a_config_error(text: str) -> None:
    for dialect in ("java", "librdkafka"):
        try:
            found = parse_properties(text, dialect)
        except ConfigError:
            continue
        assert all(isinstance(value, str) for value in found.values())


@given(st.dictionaries(st.from_regex(r"[a-z.]{1,20}", fullmatch=True), st.text(min_size=1)))
def test_what_java_escapes_reads_back(mapping: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        return "".join(f"\\u{ord(c):04x}" if ord(c) < 0x10000 else c for c in text)

    text = "\n".join(f"{name}={escaped(value)}" for name, value in mapping.items())
    assert parse_properties(text, "java") == mapping
