"""Runs a command that dies with its parent, however that ends: ``leash.py PARENT COMMAND...``.

The kernel sends the signal when the parent's *thread* ends, so process.py starts everything from
one thread that lives as long as the run. A preexec_fn would do the same, but running Python
between fork and exec in a process with threads may deadlock.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # Too late for the signal when the parent was faster.
    if os.getppid() != int(parent):
        sys.exit("the parent is gone")
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
