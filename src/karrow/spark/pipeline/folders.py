"""Files of a pipeline beside Spark's own, on whatever file system its checkpoint is."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from karrow.errors import ConfigError
from karrow.spark.pipeline.session import said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

__all__ = ["FILES", "OFFSETS", "Folder"]

# Spark's logs of batches: those of a query in its checkpoint, and those of files in their folder.
OFFSETS = "offsets"
FILES = "_spark_metadata"
# What Spark calls the batches in its logs; every tenth of files holds those before it.
_BATCH = re.compile(r"(\d+)(\.compact)?")


class Folder:
    """A folder that may not exist yet; ``where`` is what errors name."""

    def __init__(self, spark: SparkSession, path: str, where: str) -> None:
        self._path = path
        self._where = where
        self._jvm: Any = spark._jvm  # noqa: SLF001 - Spark has no other way to ask
        with self._named():
            state = spark._jsparkSession.sessionState()  # noqa: SLF001
            self._files = self._at("").getFileSystem(state.newHadoopConf())

    def last_batch(self, log: str) -> int:
        """The last batch in a log of Spark's, a folder inside of it; -1 without any."""
        with self._named():
            path = self._at(log)
            if not self._files.exists(path):
                return -1
            names = [status.getPath().getName() for status in self._files.listStatus(path)]
        found = [int(batch[1]) for name in names if (batch := _BATCH.fullmatch(name))]
        return max(found, default=-1)

    def read(self, name: str) -> str | None:
        """A file's text; None if it is not there."""
        with self._named():
            path = self._at(name)
            if not self._files.exists(path):
                return None
            stream = self._files.open(path)
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

    def write(self, name: str, text: str) -> None:
        """Make a file, which is there as a whole or not at all."""
        with self._named():
            unfinished = self._at(f".{name}.unfinished")
            stream = self._files.create(unfinished, True)
            try:
                stream.write(text.encode())
            finally:
                stream.close()
            if not self._files.rename(unfinished, self._at(name)):
                raise ConfigError(f"{self._where} {self._path}/{name} could not be written")

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._path}/{name}" if name else self._path)

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except (Py4JJavaError, PySparkException) as error:
            raise ConfigError(f"{self._where} {self._path}: {said(error)}") from None
