"""Builds the Cython kernel; everything else about the package stands in pyproject.toml."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

CORES = os.cpu_count() or 1
SANITIZE = os.environ.get("KARROW_SANITIZE", "")
COMPILE = ["-O3", "-fno-strict-aliasing", "-fvisibility=hidden", "-Wno-unused-function"]
LINK: list[str] = []
if SANITIZE:
    flags = [f"-fsanitize={SANITIZE}", "-fno-omit-frame-pointer", "-g"]
    COMPILE += flags
    LINK += flags


def extension(source: Path) -> Extension:
    """One extension module per .pyx file, named by its place below src/."""
    name = ".".join(source.with_suffix("").parts[1:])
    return Extension(name, [str(source)], extra_compile_args=COMPILE, extra_link_args=LINK)


setup(
    ext_modules=cythonize(
        [extension(source) for source in sorted(Path("src").rglob("*.pyx"))],
        include_path=["src"],
        compiler_directives={
            "language_level": "3",
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "embedsignature": True,
        },
        nthreads=CORES,
    ),
    options={"build_ext": {"parallel": str(CORES)}},
)
