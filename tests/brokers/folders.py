"""Where brokers keep their data: in memory if there is room, and never left behind."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
ROOM = 2 << 30
PREFIX = "karrow-kafka-"

_locks: dict[Path, int] = {}


def new_folder() -> Path:
    """A folder that is ours until the process ends.

    Who is killed cannot tidy up. Each folder has a lock that ends with its process, so the next
    run sees whose owner is gone.
    """
    parent = _parent()
    for left in parent.glob(f"{PREFIX}*"):
        _remove_if_orphaned(left)
    # The lock comes first, so that nobody takes the folder for an orphan.
    descriptor, lock = tempfile.mkstemp(dir=parent, prefix=PREFIX, suffix=".lock")
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    folder = Path(lock).with_suffix("")
    folder.mkdir()
    _locks[folder] = descriptor
    return folder


def remove_folder(folder: Path) -> None:
    """Delete it and its lock."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.with_suffix(".lock").unlink(missing_ok=True)
    descriptor = _locks.pop(folder, None)
    if descriptor is not None:
        os.close(descriptor)


def _parent() -> Path:
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
        return MEMORY
    return Path(tempfile.gettempdir())


def _remove_if_orphaned(left: Path) -> None:
    if left.suffix != ".lock":
        return
    try:
        with left.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left.with_suffix(""), ignore_errors=True)
            left.unlink(missing_ok=True)
    except OSError:
        # Its owner lives, or was faster in removing it.
        return
