"""A job whose task fails, with a barrier and without, where Spark tries a task several times."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tests.spark.sessions import session

TRIES = 4


def failing(log: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What a task does; made inside of a function, so that its code travels."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        from pathlib import Path  # noqa: PLC0415 - where the task runs

        from pyspark import TaskContext  # noqa: PLC0415

        number = TaskContext.get().partitionId()  # type: ignore[union-attr]
        with Path(log).open("a") as file:
            file.write(f"{number}\n")
        yield from batches
        if number == 1:
            raise OSError("told to fail")

    return run


def failure(job: DataFrame) -> str:
    """What Spark says of a job."""
    try:
        job.collect()
    except (PySparkException, Py4JJavaError) as error:
        return str(error)
    raise AssertionError("it went through")


def main(folder: Path) -> None:
    spark = session(folder, f"local[2,{TRIES}]")
    found = {}
    for kind in ("barrier", "plain"):
        log = folder / kind
        rows = spark.range(100).repartition(2, "id")
        job = rows.mapInArrow(failing(str(log)), "id long", barrier=kind == "barrier")
        said = failure(job)
        found[kind] = {"runs": sorted(map(int, log.read_text().split())), "said": said}
    spark.stop()
    (folder / "found").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
