"""Python source under construction: what the encoder's and the decoder's compilers share."""

from __future__ import annotations

import functools
import linecache
from contextlib import contextmanager
from struct import Struct as Packer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Source:
    """Lines of a function, and the constants they refer to by name."""

    def __init__(self, **scope: Any) -> None:
        self.scope = scope
        self._lines: list[str] = []
        self._depth = 0
        self._serial = 0

    def emit(self, line: str) -> None:
        """Add a line at the current depth."""
        self._lines.append("    " * self._depth + line)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Add an opening line; what is emitted inside stands one level deeper."""
        self.emit(opening)
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def function(self, opening: str) -> Iterator[None]:
        """Write a helper function; it ends up before everything emitted so far."""
        outer, depth = self._lines, self._depth
        self._lines, self._depth = [], 0
        with self.block(opening):
            yield
        self._lines, self._depth = self._lines + outer, depth

    def name(self, prefix: str) -> str:
        """A name not used yet."""
        self._serial += 1
        return f"{prefix}{self._serial}"

    def constant(self, value: object, prefix: str = "c") -> str:
        """A name for a value that cannot be written as source."""
        for name, known in self.scope.items():
            if known is value:
                return name
        name = self.name(prefix)
        self.scope[name] = value
        return name

    def compile(self, title: str, entry: str) -> Callable[..., Any]:
        """Compile everything and return the function called ``entry``.

        The source stays in linecache, so tracebacks and debuggers show its lines.
        """
        text = "\n".join(self._lines) + "\n"
        filename = f"<karrow {title}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        exec(compile(text, filename, "exec"), self.scope)  # noqa: S102 - from our own table
        compiled: Callable[..., Any] = self.scope[entry]
        return compiled


@functools.cache
def packer(codes: str) -> Packer:
    """A big-endian packer; messages share those of the same format."""
    return Packer(">" + codes)


class Runs(dict[int, Any]):
    """``runs[n]`` packs or unpacks n values of one code; short runs are kept."""

    KEPT = 64

    def __init__(self, code: str, method: str) -> None:
        super().__init__()
        self._code = code
        self._method = method

    def __missing__(self, count: int) -> Any:
        run = getattr(Packer(f">{count}{self._code}"), self._method)
        if count < self.KEPT:
            self[count] = run
        return run
