"""How karrow's code comes to Spark's workers: one without karrow says so in one line.

Spark pickles what it sends, and names the modules that it comes from; where such a module is
missing, it shows a stack of its own and the name. The function here is pickled with its code
instead, so it runs wherever Python does.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark import cloudpickle

__all__ = ["arrive"]


def arrive(module: str, name: str, options: Any) -> Any:
    """Make again, in another process, what was made of options."""
    # Everything stands in here: the code travels, what is around it does not.
    import importlib
    import sys

    try:
        importlib.import_module("karrow.spark.worker").begin_task()
        home = importlib.import_module(module)
    except ImportError as error:
        raise RuntimeError(
            f"karrow cannot be imported by the Python of this Spark worker ({sys.executable}): "
            f"{error}; install karrow there, or name another Python with PYSPARK_PYTHON"
        ) from None
    return getattr(home, name)(options)


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
