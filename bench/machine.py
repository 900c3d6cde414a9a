"""Describes the machine and the versions a result belongs to; names neither host nor path."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from karrow import records


def describe(packages: Iterable[str]) -> dict[str, str]:
    """What somebody needs to know to compare numbers with these."""
    facts = {
        "CPU": f"{_proc('cpuinfo', 'model name')}, {os.cpu_count()} cores",
        "memory": f"{int(_proc('meminfo', 'MemTotal').split()[0]) / 2**20:.0f} GiB",
        "system": f"{platform.system()} {platform.release().split('-')[0]} {platform.machine()}",
        "Python": f"{platform.python_version()} ({platform.python_compiler()})",
        "kernel": records.build_info(),
        # Numbers taken beside other work must not pass for numbers taken alone.
        "load at start": f"{os.getloadavg()[0]:.1f}",
    }
    for name in packages:
        with contextlib.suppress(PackageNotFoundError):  # a yardstick that is no library
            facts[name] = version(name)
    return facts


def _proc(file: str, key: str) -> str:
    """The first value of a key in one of Linux's /proc tables."""
    lines = Path("/proc", file).read_text("utf-8").splitlines()
    return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(key))
