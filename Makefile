# Everything runs in .venv, which these targets create: `make demo` and `make test` need
# nothing but Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test lint types layers unit bench clean

help:
	@echo "make demo   set up, then 20 nodes learning together against the same nodes alone"
	@echo "make test   set up, then lint, types, layers and all tests"
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

test: lint types layers unit

lint: $(VENV)/.stamp-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.stamp-dev
	$(BIN)/mypy

layers: $(VENV)/.stamp-dev
	$(BIN)/lint-imports

unit: $(VENV)/.stamp-dev
	$(BIN)/python -m pytest -n 2 --dist loadfile -q

bench: $(VENV)/.stamp-dev
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
