"""Java's one-line login configuration: which login module, with which options."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from karrow.errors import ConfigError

__all__ = ["JaasEntry", "parse_jaas"]

_FLAGS = {"required", "requisite", "sufficient", "optional"}
# Java's own tokenizer takes either quote, and backslashes inside.
_TOKEN = re.compile(
    r"""\s*(?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'"""
    r"""|(?P<mark>[=;])|(?P<word>[^\s"'=;]+))"""
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """A login module by its class name, and its options, which are not for printing."""

    module: str
    options: dict[str, str] = field(repr=False)


def parse_jaas(text: str) -> JaasEntry:
    """Read ``sasl.jaas.config``; errors never repeat it, because passwords stand in it.

    >>> parse_jaas('a.PlainLoginModule required username="u" password="p";').module
    'a.PlainLoginModule'
    """
    tokens = _tokens(text.strip())
    if len(tokens) < 3 or tokens[-1] != (";", True):
        raise _malformed("it has to end with ';'")
    module, flag, *rest = tokens[:-1]
    if flag[0].lower() not in _FLAGS:
        raise _malformed("the second word has to be 'required'")
    return JaasEntry(module[0], _pairs(rest))


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Words, and whether each is a mark that stands for itself."""
    tokens = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _malformed("a quote is not closed")
        at = match.end()
        quoted = match["double"] if match["double"] is not None else match["single"]
        if quoted is not None:
            tokens.append((_ESCAPE.sub(r"\1", quoted), False))
        else:
            tokens.append((match["mark"] or match["word"], match["mark"] is not None))
    return tokens


def _pairs(tokens: list[tuple[str, bool]]) -> dict[str, str]:
    if len(tokens) % 3 or any(mark != ("=", True) for mark in tokens[1::3]):
        raise _malformed('after the second word only name="value" may follow')
    return {name: value for (name, _), (value, _) in zip(tokens[::3], tokens[2::3], strict=True)}


def _malformed(why: str) -> ConfigError:
    return ConfigError(
        f"sasl.jaas.config cannot be read: {why}",
        hint='it looks like: LoginModule required username="..." password="...";',
    )
