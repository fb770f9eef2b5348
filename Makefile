# Everything runs in .venv, which these targets create: `make demo` and `make test` need
# nothing but Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test test-all lint types layers unit unit-all test-live test-browser docs dist \
	test-package test-pythons bench clean

help:
	@echo "make demo   set up, then 20 nodes learning together, by sums and by vectors, and alone"
	@echo "make test   set up, then lint, types, layers and tests"
	@echo "make test-all       the same with the tests marked slow"
	@echo "make test-live      agents as processes: crashes, partitions, strangers (minutes)"
	@echo "make test-browser   the web page of a live network, in Chromium (installs it)"
	@echo "make docs   set up, then run the pages' examples and build the site into site/"
	@echo "make dist   set up, then wheel and sdist into dist/"
	@echo "make test-package   install both into empty environments and use them"
	@echo "make test-pythons   the core tests on every Python 3.11, 3.12, 3.13 found"
	@echo "make bench  set up, then the speed benchmarks (several minutes)"
	@echo "make clean  remove the environment and everything built"

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "dokl needs Python 3.11 or newer; try make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# The stamps are remade when pyproject.toml changes, so a stale environment repairs itself.
$(VENV)/.stamp-demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[plot]'
	@touch $@

$(VENV)/.stamp-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.stamp-demo

demo: $(VENV)/.stamp-demo
	$(BIN)/dokl demo

# Types are checked beside the tests: one core would be idle meanwhile.
test: lint layers
	$(MAKE) --jobs=2 types unit

test-all: lint layers
	$(MAKE) --jobs=2 types unit-all

lint: $(VENV)/.stamp-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.stamp-dev
	$(BIN)/mypy

layers: $(VENV)/.stamp-dev
	$(BIN)/lint-imports

# Where Python is told to write no bytecode, each of the hundreds of processes that tests start
# would compile the package again, and each worker all test files: a third of a minute of each core.
unexport PYTHONDONTWRITEBYTECODE

# Each of the two workers begins with half of the tests, in order, so that most files stay whole; an
# idle worker takes tests from the other.
PYTEST := $(BIN)/python -m pytest -q
UNIT := $(PYTEST) -n 2 --dist worksteal

unit: $(VENV)/.stamp-dev
	$(UNIT) -m "not slow"

unit-all: $(VENV)/.stamp-dev
	$(UNIT)

# One after the other: these tests start processes of their own, and there may be two cores.
test-live: $(VENV)/.stamp-dev
	@PATH="$$PATH:/usr/sbin"; command -v mosquitto > /dev/null && command -v prometheus > /dev/null \
	    || tests/processes/install_servers
	$(PYTEST) tests/processes

test-browser: $(VENV)/.stamp-dev
	@command -v chromium > /dev/null || tests/browser/install_chromium
	$(PYTEST) tests/browser

docs: $(VENV)/.stamp-dev
	$(BIN)/python docs/tools/cli_page.py
	$(BIN)/python docs/tools/states_page.py
	$(BIN)/python docs/tools/architecture.py
	$(BIN)/python docs/tools/pages.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "open site/index.html"

dist: $(VENV)/.stamp-dev
	rm -rf dist
	$(BIN)/python -m build --no-isolation > /dev/null
	@ls dist/*

test-package: dist
	$(BIN)/python tests/packages.py install

test-pythons: dist
	$(BIN)/python tests/packages.py pythons

bench: $(VENV)/.stamp-dev
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
