"""The client's only room with sockets: connections, the cluster's metadata, routing, retries."""

from __future__ import annotations

from karrow.net import retry

__all__ = ["retry"]
