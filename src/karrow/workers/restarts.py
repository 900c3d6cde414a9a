"""How often workers may be restarted: a supervisor's count. No clock but what it is told."""

from __future__ import annotations

from collections import deque


class Restarts:
    """Counts restarts in a window of time, for all workers of a group together."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._recent: deque[float] = deque()

    def allow(self, now: float) -> bool:
        """A worker has crashed: whether it may be restarted."""
        while self._recent and self._recent[0] <= now - self._seconds:
            self._recent.popleft()
        if len(self._recent) >= self._most:
            return False
        self._recent.append(now)
        return True
