# Everything happens inside the checkout: packages in .venv, downloaded jars in $KARROW_CACHE.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
BIN := .venv/bin
export KARROW_CACHE ?= $(CURDIR)/.cache
# Every process of Spark's, and every program that a test starts, would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

KERNEL := $(shell find src -name '*.pyx' -o -name '*.pxd')
# Whatever makes a file of the repository can also check that it is up to date.
CHECKS := $(wildcard tools/make_*.py)
FUZZ := $(wildcard tests/fuzz/fuzz_*.py)
KERNEL_FUZZ := $(wildcard tests/fuzz/fuzz_records*.py)
FUZZ_SECONDS ?= 60
ONLY ?=

.PHONY: help setup demo test test-full test-newest-spark test-cluster fuzz sanitize lint format bench clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 12

setup: .venv/kernel ## make .venv with the kernel and everything the targets below need

.venv/packages: constraints.txt pyproject.toml tools/preflight.py
	@command -v $(PYTHON) > /dev/null || { echo "setup needs: Python 3.11 or newer ($(PYTHON) not found; see PYTHON=)" >&2; exit 1; }
	@$(PYTHON) tools/preflight.py
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -c constraints.txt setuptools Cython
	$(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

# Compiles what changed. New flags or directives in setup.py concern every extension, except right
# after the first install, which has just compiled them all.
.venv/kernel: FORCE = $(if $(wildcard .venv/kernel),$(filter setup.py,$?))
.venv/kernel: .venv/packages setup.py $(KERNEL)
	CYTHON_FORCE_REGEN=$(if $(FORCE),1,0) \
	    $(BIN)/python setup.py -q build_ext --inplace $(if $(FORCE),--force)
	@touch $@

demo: setup ## orders through a pipeline on Spark that is killed on the way, and the proof
	@command -v java > /dev/null || { echo "the demo runs on Spark, which needs Java 17 or newer" >&2; exit 1; }
	@$(BIN)/python examples/demo.py

test: setup ## the gate: everything but the slow tests
	$(BIN)/pytest -m 'not slow'

# In parts side by side, the longest first: most tests wait for something most of the time. Each part
# prints its seed. What Spark writes exactly once, with all the deaths of drivers and executors, takes
# as long as all else of Spark.
FULL := once spark contract chaos+embedded+interop unit+property+oracle+fuzz
JOBS ?= 3

test-full: setup ## every test, Spark's newest release and a cluster, long fuzz, the kernel under sanitizers
	@$(MAKE) -j$(JOBS) -k -O $(FULL:%=full-%)
	@$(MAKE) test-newest-spark
	@$(MAKE) test-cluster
	@$(MAKE) fuzz
	@$(MAKE) sanitize

ONCE := $(wildcard tests/spark/test_*exactly_once*.py)
OTHERS := $(filter-out $(ONCE),$(wildcard tests/spark/test_*.py))
WHOLE = KARROW_TEST_PROFILE=full $(BIN)/pytest -p no:cacheprovider

full-once:
	$(WHOLE) $(ONCE)

full-spark:
	$(WHOLE) $(OTHERS)

full-%:
	$(WHOLE) $(patsubst %,tests/%,$(subst +, ,$*))

# The newest Spark is put before the one in .venv, whose own Kafka connector is the newest to be had:
# the tests that compare the two connectors are left out here. A whole path: tests start programs elsewhere.
NEWEST_SPARK := 4.3.0
ON_NEWEST = PYTHONPATH=$(CURDIR)/.venv/pyspark-$(NEWEST_SPARK) $(BIN)/pytest -p no:cacheprovider -m 'not connector'

test-newest-spark: setup .venv/pyspark-$(NEWEST_SPARK) ## the Spark tests, on a release newer than .venv's
	@$(MAKE) -j2 -k -O newest-once newest-spark

newest-once:
	$(ON_NEWEST) $(ONCE)

newest-spark:
	$(ON_NEWEST) $(OTHERS)

.venv/pyspark-$(NEWEST_SPARK): .venv/packages
	$(BIN)/python -m pip install -q --no-deps --target $@ pyspark==$(NEWEST_SPARK) py4j
	@touch $@

test-cluster: setup ## the tests of pipelines, on a Spark cluster of a master and two workers
	KARROW_TEST_SPARK=standalone $(BIN)/pytest tests/spark/test_pipeline*.py

# The targets given first, each with the environment given second.
define run-fuzz
@mkdir -p build/fuzz
@for target in $(1); do \
    echo "== $$target"; \
    $(2) $(BIN)/python $$target -max_total_time=$(FUZZ_SECONDS) -artifact_prefix=build/fuzz/; \
done
endef

fuzz: setup ## each fuzz target for FUZZ_SECONDS (60), starting from its corpus
	$(call run-fuzz,$(FUZZ))

# A second copy of the package with an instrumented kernel, put before the installed one. Python's
# and Arrow's own allocators would hide overruns from the sanitizer; CPython leaks by design at exit.
SANITIZED = PYTHONPATH=build/sanitized/lib PYTHONMALLOC=malloc ARROW_DEFAULT_MEMORY_POOL=system \
    ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
    LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)"

sanitize: setup ## the kernel's tests and fuzz with AddressSanitizer and UBSan
	KARROW_SANITIZE=address,undefined $(BIN)/python setup.py -q build \
	    --build-base build/sanitized --build-lib build/sanitized/lib
	$(SANITIZED) $(BIN)/pytest tests/unit/records tests/unit/aio tests/property
	$(call run-fuzz,$(KERNEL_FUZZ),$(SANITIZED))

lint: setup ## style, types, direction of imports, and that generated files are up to date
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	PATH=$(BIN):$$PATH cython-lint src
	$(BIN)/mypy
	$(BIN)/lint-imports
	@for tool in $(CHECKS); do echo "$$tool --check"; $(BIN)/python $$tool --check; done

format: setup ## put the sources into house style
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: setup ## run the benchmarks, or ONLY=name; tables and charts go into docs/
	PYTHONPATH=tools $(BIN)/python -m bench $(ONLY)

clean: ## remove what was built; keeps .venv's packages and downloaded jars
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf src/*.egg-info
	find src -name '*.so' -delete
	find src -name '*.pyx' | sed 's/pyx$$/c/' | xargs rm -f
	rm -f .venv/kernel
