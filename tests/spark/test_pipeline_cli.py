"""`karrow pipeline` as a process: signals, restarts, the view, a real cluster."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import karrow
from tests.spark.pipelines import Shop, order
from tests.spark.standalone import Standalone

LIMIT = 600.0

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def broker() -> Iterator[karrow.Broker]:
    with karrow.Broker() as made:
        yield made


@pytest.fixture
def shop(broker: karrow.Broker, tmp_path: Path) -> Shop:
    return Shop(broker.bootstrap, tmp_path)


def command(action: str, file: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "karrow", "pipeline", action, str(file), *more]


def start(shop: Shop, *more: str, **changes: Any) -> subprocess.Popen[str]:
    """A run in a process group of its own, as a shell would have it."""
    return subprocess.Popen(
        command("run", shop.file(shop.values(**changes)), "--master", "local[2]", *more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    )


def until(process: subprocess.Popen[str], pattern: str) -> list[str]:
    """The lines up to one that is like the pattern."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if re.search(pattern, line):
            return lines
    raise AssertionError("".join(lines))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_a_restart_goes_on(shop: Shop, number: signal.Signals) -> None:
    shop.send(order(0), order(1), b"bad")
    with start(shop) as process:
        until(process, r"raw batch 0: 3 rows in, 2 out")
        # Ctrl-C goes to every process of the terminal's group.
        os.killpg(process.pid, number) if number == signal.SIGINT else process.terminate()
        rest = process.communicate(timeout=LIMIT)[0]
    assert process.returncode == 0, rest
    assert f"{shop.name}: stopped after" in rest
    assert "Traceback" not in rest
    shop.send(order(2), order(3, minute=5))
    with start(shop, "--once") as process:
        rest = process.communicate(timeout=LIMIT)[0]
    assert process.returncode == 0, rest
    assert re.search(r"raw: 2 rows in \([\d,]+/s\), 2 out, 1 batches", rest)
    assert shop.raw() == [0, 1, 2, 3]
    assert shop.totals() == [("ann", 0, 3, 300)]
    assert [message.value() for message in shop.bad()] == [b"bad"]


def test_a_terminal_has_a_live_view(shop: Shop) -> None:
    shop.send(order(0))
    ours, theirs = pty.openpty()
    file = shop.file(shop.values(sources__orders__dead_letter=None, sinks__totals=None))
    with subprocess.Popen(
        command("run", file, "--once", "--master", "local[2]"),
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    ) as process:
        os.close(theirs)
        text = _read_all(ours)
    assert process.returncode == 0, text
    assert "Ctrl-C stops" in text
    assert "rows/s in" in text
    assert re.search(r"raw.*│ +1 │ +1 │", text), text


def _read_all(terminal: int) -> str:
    found = b""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 1.0)[0]:
            continue
        try:
            piece = os.read(terminal, 65536)
        except OSError:
            break
        if not piece:
            break
        found += piece
    return found.decode()


def test_without_a_master_it_runs_on_this_machine(shop: Shop) -> None:
    """On all of its cores; whoever names another one in the file has that."""
    module = "from pathlib import Path\n\ndef look(rows):\n"
    module += "    master = Path(__file__).with_name('master')\n"
    module += "    master.write_text(rows.sparkSession.sparkContext.master)\n    return rows\n"
    (shop.folder / "shop_master.py").write_text(module)
    shop.send(order(0))
    changes: dict[str, Any] = {
        "sources__orders__dead_letter": None,
        "steps__seen": {"function": "shop_master:look", "inputs": ["orders"]},
        "sinks__totals": None,
        "sinks__raw__from": "seen",
    }

    def master(*more: str, **others: Any) -> str:
        done = done_by(command("run", shop.file(shop.values(**changes, **others)), "--once", *more))
        assert done.returncode == 0, done.stdout + done.stderr
        return (shop.folder / "master").read_text()

    assert master() == "local[*]"
    assert shop.raw() == [0]
    assert master(spark={"spark.master": "local[1]"}) == "local[1]"
    assert master("--master", "local[2]", spark={"spark.master": "local[1]"}) == "local[2]"


def test_a_console_sink_shows_its_rows(shop: Shop) -> None:
    shop.send(order(7, cents=21), b"bad", order(8, "bob"))
    values = shop.values(
        steps__brief={"sql": "SELECT id, customer, cents FROM orders"},
        sources__orders__dead_letter=None,
        sources__orders__bad_rows="drop",
        sinks__totals=None,
        sinks__raw=None,
        sinks__look={"from": "brief", "kind": "console"},
    )
    done = done_by(command("run", shop.file(values), "--once", "--master", "local[2]"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Batch: 0" in done.stdout
    cells = [re.findall(r"[^|\s]+", line) for line in done.stdout.splitlines() if line[:1] == "|"]
    assert cells[0] == ["id", "customer", "cents"]
    assert sorted(cells[1:]) == [["7", "ann", "21"], ["8", "bob", "100"]]


def test_what_is_wrong_is_one_line_and_an_exit_code(shop: Shop) -> None:
    file = shop.file(shop.values(steps__totals__sql="SELECT * FROM ordrs"))
    done = subprocess.run(command("check", file), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        f"karrow: {file}: [steps.totals] sql names no table 'ordrs'; did you mean 'orders'?\n"
    )
    file = shop.file(shop.values(steps__totals__sqll="x"))
    done = subprocess.run(command("plan", file), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        f"karrow: {file}: [steps.totals] has no key 'sqll'; did you mean 'sql'?\n"
    )


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"spark.sql.shuffle.partitions": "many"}, "The value 'many' in the config"),
        (
            {"spark.driver.maxResultSize": "env:SHOP_SIZE"},
            "The value 'env:SHOP_SIZE' in the config",
        ),
    ],
)
def test_a_setting_that_spark_refuses_is_one_line(
    shop: Shop, settings: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_SIZE", "hunter2")
    file = shop.file(shop.values(spark=settings))
    done = done_by(command("check", file))
    assert done.returncode == 1
    (line,) = (line for line in done.stderr.splitlines() if not line.endswith(".log"))
    assert line.startswith("karrow: Spark did not start: [INVALID_CONF_VALUE.TYPE_MISMATCH]")
    assert told in line


def test_a_check_and_a_plan_say_what_they_saw(shop: Shop, tmp_path: Path) -> None:
    file, log = shop.file(shop.values()), tmp_path / "spark.log"
    done = done_by(command("check", file, "--brokers", "--log", str(log)))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{shop.name}: nothing wrong was found\n"
    assert log.exists()
    done = done_by(command("plan", file))
    assert (done.returncode, done.stderr) == (0, "")
    for part in (shop.topic("orders"), shop.topic("bad"), shop.topic("totals"), "customer STRING"):
        assert part in done.stdout


def test_a_query_that_fails_is_an_exit_code_and_names_its_log(shop: Shop, tmp_path: Path) -> None:
    shop.send(order(0), b"bad")
    file = shop.file(shop.values(sources__orders__dead_letter=None))
    run = command("run", file, "--once", "--master", "local[2]")
    done = done_by(run, TMPDIR=str(tmp_path))
    assert done.returncode == 1, done.stdout
    found = re.search(r"^karrow: .*what Spark says is in (\S+)$", done.stderr, re.MULTILINE)
    assert found, done.stderr
    assert Path(found[1]).exists()
    wanted = tmp_path / "spark.log"
    done = done_by([*run, "--log", str(wanted)])
    assert done.returncode == 1, done.stdout
    assert "what Spark says" not in done.stderr
    assert wanted.read_text() != ""


def done_by(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """A command that has ended."""
    return subprocess.run(
        arguments,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def test_a_real_cluster_runs_it(shop: Shop, tmp_path: Path) -> None:
    """A master and two workers; a module beside the file goes along to them."""
    module = "from pyspark.sql import functions as f\n\ndef text(n):\n    return f'#{n}'\n\n"
    module += "def noted(rows):\n    return rows.withColumn('note', f.udf(text)('id'))\n"
    (shop.folder / "shop_steps.py").write_text(module)
    shop.send(order(0), order(1, "bob"), b"bad", order(2, minute=5))
    values = shop.values(
        spark={"spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": 2},
        steps__noted={"function": "shop_steps:noted", "inputs": ["orders"]},
        sinks__raw__from="noted",
    )
    with Standalone(tmp_path / "cluster") as cluster:
        done = subprocess.run(
            command("run", shop.file(values), "--once", "--master", cluster.master),
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert shop.raw() == [0, 1, 2]
    assert shop.totals() == [("ann", 0, 1, 100), ("bob", 0, 1, 100)]
    assert [message.value() for message in shop.bad()] == [b"bad"]


def test_a_driver_that_is_killed_on_a_real_cluster_is_started_again(
    shop: Shop, tmp_path: Path
) -> None:
    """SIGKILL of all that the driver has, with batches that are done and one that is not."""
    more: dict[str, Any] = {
        "spark": {"spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": 2},
        "sources__orders__options": {"maxOffsetsPerTrigger": 2},
    }
    shop.send(*(order(number) for number in range(20)), b"bad", b"worse")
    with Standalone(tmp_path / "cluster") as cluster:
        with start(shop, "--master", cluster.master, **more) as process:
            until(process, r"raw batch 2: 2 rows in, 2 out")
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=LIMIT)
        assert process.returncode == -signal.SIGKILL
        shop.send(order(20), order(21, minute=5))
        with start(shop, "--once", "--master", cluster.master, **more) as process:
            rest = process.communicate(timeout=LIMIT)[0]
        assert process.returncode == 0, rest
    assert shop.raw() == list(range(22))
    assert shop.totals() == [("ann", 0, 21, 2100)]
    assert sorted(message.value() or b"" for message in shop.bad()) == [b"bad", b"worse"]
    (first,) = re.findall(r"raw batch (\d+): .*", rest)[:1]
    assert int(first) > 2, "it went on, and did not begin anew"
