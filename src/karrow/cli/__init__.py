"""The ``karrow`` command."""

from __future__ import annotations
