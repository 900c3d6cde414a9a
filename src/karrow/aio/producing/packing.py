"""Compression of batches, off the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from karrow.records.compression import find_codec

if TYPE_CHECKING:
    from karrow.aio._batch import Batch

# What is compressed faster than it is handed to a thread.
INLINE_BYTES = 16 * 1024
THREADS = min(2, os.cpu_count() or 1)


class Packer:
    """Compresses batches before they are sent; the codecs let other threads run meanwhile."""

    def __init__(
        self,
        compression: str | None,
        level: int | None,
        on_packed: Callable[[Batch, BaseException | None], object],
    ) -> None:
        self.codec = find_codec(compression, level)
        self._level = level
        self._on_packed = on_packed
        self._executor: ThreadPoolExecutor | None = None

    def is_ready(self, batch: Batch) -> bool:
        """Whether a closed batch can be sent; if not, work on it is under way."""
        if self.codec is None or batch.is_packed:
            return True
        if batch.is_packing:
            return False
        if batch.size <= INLINE_BYTES:
            batch.pack(self.codec, self._level)
            return True
        batch.is_packing = True
        batch.hold()
        work = asyncio.get_running_loop().run_in_executor(
            self._threads(), batch.pack, self.codec, self._level
        )
        work.add_done_callback(lambda done: self._packed(batch, done))
        return False

    def _packed(self, batch: Batch, done: asyncio.Future[None]) -> None:
        batch.is_packing = False
        batch.let_go()
        self._on_packed(batch, None if done.cancelled() else done.exception())

    def _threads(self) -> ThreadPoolExecutor:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(THREADS, "karrow-compress")
        return self._executor

    def close(self) -> None:
        """End the threads."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
