"""Transactions: `transaction.py` has one transactional id's state, `coordinator.py` all of them."""

from __future__ import annotations
