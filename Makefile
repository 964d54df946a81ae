# Two commands do everything: `make audit` and `make test`. Both create .venv where it is missing.
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# The first interpreter that is new enough; `make PYTHON=...` chooses another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
SESSION ?= fixtures/sessions/demo.session.jsonl
REPORT ?= cacheaudit-report.html
PIP := $(BIN)/python -m pip --quiet --quiet --disable-pip-version-check --no-input install --constraint tests/constraints.txt
LIBRARY := cacheaudit/ingest/_lines.abi3.so
SCANNER := $(wildcard cacheaudit/ingest/*.[ch]) cacheaudit/ingest/_build_hook.py
WORKERS ?= 2

.PHONY: audit test fuzz check bench corpus services clean

audit: $(VENV)/.base
	@$(BIN)/cacheaudit audit $(SESSION)
	@$(BIN)/cacheaudit audit $(SESSION) --quiet --format html --output $(REPORT)
	@echo "HTML report: $(REPORT)"

test: $(VENV)/.test services
	@$(BIN)/python -m pytest -n $(WORKERS) -q $(PYTEST_ARGS)

# The property tests with other examples than those that `make test` draws in every run.
fuzz: $(VENV)/.test services
	@HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -n $(WORKERS) -q $(PYTEST_ARGS)

check: $(VENV)/.test
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports
	@$(BIN)/mypy

# Measures beside other tools; fetches them into .cache on the first run.
bench: $(VENV)/.test
	@$(BIN)/python -m compileall -q cacheaudit
	@$(BIN)/python -m pytest tests/bench -s -q $(PYTEST_ARGS)

# The corpus as drawn that `make bench` reads; it makes this one and the one of longer lines itself.
corpus: .cache/corpus500/truth.json

.cache/corpus500/truth.json: | $(VENV)/bin/python
	@rm -rf .cache/corpus500
	@$(BIN)/python -m fixtures.make.make_corpus .cache/corpus500 --size 500MB --seed 1

services:
	@tests/services.sh

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name it with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

# `make audit` needs the light base only; the stamps make a second run start at once.
# Installing compiles the scanner, where there is a compiler.
$(VENV)/.base: pyproject.toml tests/constraints.txt $(SCANNER) | $(VENV)/bin/python
	@$(PIP) --editable .
	@test -f $(LIBRARY) || echo "No compiled scanner, all else works; $(BIN)/cacheaudit doctor says what to install."
	@$(BIN)/python -m compileall -q cacheaudit  # an editable install leaves this to the first run
	@touch $@

$(VENV)/.test: $(VENV)/.base
	@$(PIP) "pip>=25.1"
	@$(PIP) --editable '.[anthropic,codemode,httpx,mcp,postgres,tokens,tools,zstd]' --group lint --group test
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache $(LIBRARY)*
