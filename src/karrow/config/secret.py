"""Text that must not be seen: passwords, tokens, keys."""

from __future__ import annotations

import hmac
from typing import Never, Self

from karrow.errors import StateError

__all__ = ["Secret"]

_MASK = "***"


class Secret:
    """Text that prints as ``***`` everywhere and gives itself away only to ``reveal()``.

    It is not a str, so nothing can join, encode or serialise it by accident: ``json.dumps`` and
    ``pickle`` refuse it. Two secrets are compared in constant time.

    >>> f"password={Secret('hunter2')}"
    'password=***'
    """

    __module__ = "karrow"
    __slots__ = ("_text",)

    _text: str

    def __init__(self, text: str | Secret) -> None:
        object.__setattr__(self, "_text", text.reveal() if isinstance(text, Secret) else text)

    def reveal(self) -> str:
        """The text itself."""
        return self._text

    def __repr__(self) -> str:
        return _MASK

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(_MASK, spec)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError("a Secret cannot be changed")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self

    def __reduce_ex__(self, protocol: object) -> Never:
        raise StateError(
            "a Secret does not pickle",
            hint="read it from the environment or a provider where it is needed, or pickle what "
            "reveal() gives",
        )
