"""Consumer groups: who is in them, what they own, and what they have stored."""

from __future__ import annotations

from karrow.broker.groups.coordinator import Groups
from karrow.broker.groups.offsets import Commit, Place

__all__ = ["Commit", "Groups", "Place"]
