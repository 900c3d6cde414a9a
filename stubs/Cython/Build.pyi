from collections.abc import Mapping, Sequence

from setuptools import Extension

def cythonize(
    module_list: Sequence[Extension],
    *,
    include_path: Sequence[str] = ...,
    compiler_directives: Mapping[str, object] = ...,
    nthreads: int = ...,
) -> list[Extension]: ...
