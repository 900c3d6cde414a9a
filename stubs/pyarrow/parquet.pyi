from pathlib import Path

from pyarrow import Table

def read_table(source: str | Path, *, columns: list[str] | None = None) -> Table: ...
