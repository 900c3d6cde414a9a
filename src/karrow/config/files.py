"""Property files: Java's, with escapes and continued lines, and librdkafka's plain name=value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from karrow.errors import ConfigError

if TYPE_CHECKING:
    from karrow.config.dialects import Dialect

__all__ = ["parse_properties"]

_COMMENT = ("#", "!")
# Java: the name ends at the first =, : or blank that no backslash protects.
_JAVA_LINE = re.compile(r"(?P<name>(?:[^\\=:\s]|\\.)+)\s*[=:\s]\s*(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str, dialect: Dialect) -> dict[str, str]:
    """Names and values of a file; nothing in it is expanded or evaluated.

    Errors give the line's number, not its text, which may hold a password.

    >>> parse_properties("# mine\\nclient.id = billing\\n", "librdkafka")
    {'client.id': 'billing'}
    """
    found: dict[str, str] = {}
    for number, line in _joined(text) if dialect == "java" else _lines(text):
        name, value = _java_pair(line, number) if dialect == "java" else _pair(line, number)
        if name in found:
            raise ConfigError(f"line {number} sets {name} a second time")
        found[name] = value
    return found


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith(_COMMENT):
            yield number, stripped


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Lines, with those that end in a lone backslash joined to the next."""
    whole, first = "", 0
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = raw.lstrip()
        if not whole and (not line or line.startswith(_COMMENT)):
            continue
        first = first if whole else number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            whole += line[:-1]
        else:
            yield first, whole + line
            whole = ""
    if whole:
        yield first, whole


def _pair(line: str, number: int) -> tuple[str, str]:
    name, mark, value = line.partition("=")
    if not mark or not name.strip():
        raise ConfigError(f"line {number} is not name=value")
    return name.strip(), value.strip()


def _java_pair(line: str, number: int) -> tuple[str, str]:
    match = _JAVA_LINE.fullmatch(line)
    if match is None:
        raise ConfigError(f"line {number} is not name=value")
    return _unescaped(match["name"]), _unescaped(match["value"])


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        escape = match[1]
        return chr(int(escape[1:], 16)) if len(escape) > 1 else _CONTROL.get(escape, escape)

    return _ESCAPE.sub(plain, text)
