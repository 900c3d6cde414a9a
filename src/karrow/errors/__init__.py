"""Every error karrow raises, and the broker's error codes as classes."""

from __future__ import annotations

from karrow.errors.tree import *  # noqa: F403
