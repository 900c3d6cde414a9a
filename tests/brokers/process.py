"""A Java process that never outlives the test run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LEASH = Path(__file__).with_name("leash.py")
STOP_TIMEOUT = 60.0

# Its one thread ends with the interpreter, and with it everything on a leash.
_spawner = ThreadPoolExecutor(1, thread_name_prefix="broker-parent")


class BrokerDiedError(RuntimeError):
    """A broker ended, or never became ready; the message ends with the tail of its log."""


class JavaProcess:
    """One JVM, which may be started again; output is appended to ``log``."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether it is alive, be it paused."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process's id."""
        if self._process is None:
            raise RuntimeError(f"{self.name} was never started")
        return self._process.pid

    def start(self, command: Sequence[str]) -> None:
        """Start it; whether it is of any use is another question."""
        if self.running:
            raise RuntimeError(f"{self.name} is running already")
        leashed = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), *command]
        self._process = _spawner.submit(self._spawn, leashed).result()

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C is for the tests, which then stop their brokers.
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def pause(self) -> None:
        """SIGSTOP, and wait until every thread has stopped: the signal alone is only a request."""
        os.kill(self.pid, signal.SIGSTOP)
        while any(state not in "TZX" for state in self._thread_states()):
            time.sleep(0.001)

    def resume(self) -> None:
        """SIGCONT, if there is anyone to get it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def _thread_states(self) -> list[str]:
        found = []
        for path in Path(f"/proc/{self.pid}/task").glob("*/stat"):
            # A thread may end between the listing and the reading.
            with contextlib.suppress(OSError):
                found.append(path.read_text().rpartition(")")[2].split()[0])
        return found

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Let it shut down in order."""
        if self._process is None:
            return
        self._process.terminate()
        self.resume()
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self.died("did not stop in time") from None

    def died(self, reason: str | None = None) -> BrokerDiedError:
        """The error that tells why."""
        if reason is None:
            code = self._process.poll() if self._process is not None else None
            reason = f"ended with {code}"
        return BrokerDiedError(f"{self.name} {reason}; its log ends with:\n{self.tail()}")

    def tail(self, lines: int = 40) -> str:
        """The last lines of the log."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-lines:])
