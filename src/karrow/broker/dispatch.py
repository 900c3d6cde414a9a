"""From a request to its handler."""

from __future__ import annotations

from typing import Any

from karrow.broker.call import HANDLERS, HANGUP, Call


class Dispatcher:
    """Hands requests to their handlers."""

    def __call__(self, call: Call, body: Any) -> Any:
        """What to answer: see call.Handler."""
        if not call.session.allows(call.api):
            return HANGUP
        return HANDLERS[call.api](call, body)
