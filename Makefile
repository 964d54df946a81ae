# Two commands do everything: `make audit` and `make test`. Both create .venv where it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SESSION ?= fixtures/sessions/demo.session.jsonl
REPORT ?= cacheaudit-report.html
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint tests/constraints.txt

.PHONY: audit test check bench services clean

audit: $(VENV)/.base
	$(BIN)/cacheaudit audit $(SESSION)
	$(BIN)/cacheaudit audit $(SESSION) --quiet --format html --output $(REPORT)
	@echo "HTML report: $(REPORT)"

test: $(VENV)/.test services
	$(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

check: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

bench: $(VENV)/.test
	$(BIN)/python -m pytest tests/bench -s $(PYTEST_ARGS)

services:
	@tests/services.sh

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml tests/constraints.txt | $(VENV)/bin/python
	$(PIP) --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.base
	$(PIP) "pip>=25.1"
	$(PIP) --editable '.[anthropic,httpx,postgres,tokens,zstd]' --group lint --group test
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
