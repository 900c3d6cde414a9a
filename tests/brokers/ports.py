"""Loopback ports that stay ours while a broker is down."""

from __future__ import annotations

import random
import socket
from pathlib import Path

FIRST = 12_000
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class PortReservation:
    """Ports below the range that outgoing connections get theirs from.

    A broker that comes back needs its old port, so nobody else may have taken it meanwhile. Other
    test runs keep off because each port has an abstract socket with its number as name, which
    vanishes with this process.
    """

    def __init__(self) -> None:
        self._locks: list[socket.socket] = []

    def take(self) -> int:
        """A port that nothing listens on."""
        end = int(RANGE.read_text().split()[0]) if RANGE.exists() else 32_768
        for _ in range(1000):
            port = random.SystemRandom().randrange(FIRST, max(end, FIRST + 1000))
            if self._lock(port) and _is_free(port):
                return port
        raise RuntimeError("no free port found")

    def release(self) -> None:
        """Give all of them back."""
        for lock in self._locks:
            lock.close()
        self._locks.clear()

    def _lock(self, port: int) -> bool:
        lock = socket.socket(socket.AF_UNIX)
        try:
            lock.bind(f"\0karrow-test-port-{port}")
        except OSError:
            lock.close()
            return False
        self._locks.append(lock)
        return True


def _is_free(port: int) -> bool:
    with socket.socket() as candidate:
        try:
            candidate.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
