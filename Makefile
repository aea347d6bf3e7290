# SPDX-License-Identifier: Apache-2.0
# `make help` lists the targets. Needs Python 3.11+ (PYTHON=... picks one); everything else goes into .venv.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
RUN_STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
PYTEST_ARGS ?=

# ---- for users

.PHONY: help demo
help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | while IFS=$$'\t' read -r target text; do \
	  printf '  make %-14s %s\n' "$$target" "$$text"; done

demo: $(RUN_STAMP)  ## build, inspect, time and compare the int8 engine of the model in demo/ (no torch)
	@PATH="$(CURDIR)/$(BIN):$$PATH" demo/run.sh

# ---- for developers; `check` is what .pre-commit-config.yaml and .ci/run run

.PHONY: test check format format-check lint types imports spelling budget clean
test: $(DEV_STAMP)  ## the whole test suite, in parallel (PYTEST_ARGS=... adds arguments)
	@$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal $(PYTEST_ARGS)

check: format-check lint types imports spelling budget  ## every static check

format: $(DEV_STAMP)  ## rewrite the sources in the house format
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix --select I

format-check: $(DEV_STAMP)  ## ruff format --check
	@$(BIN)/ruff format --check

lint: $(DEV_STAMP)  ## ruff check
	@$(BIN)/ruff check

types: $(DEV_STAMP)  ## mypy, strict
	@$(BIN)/mypy

imports: $(DEV_STAMP)  ## imports go one way (import-linter)
	@$(BIN)/lint-imports

spelling: $(DEV_STAMP)  ## codespell
	@$(BIN)/codespell

budget: $(DEV_STAMP)  ## file and function sizes
	@$(BIN)/python -m pytest -q -p no:randomly tests/unit/test_file_sizes.py

clean:  ## remove .venv, caches and build results
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- the environment, made once and again when pyproject.toml changes

$(RUN_STAMP): pyproject.toml
	@scripts/make_venv.sh "" $@

$(DEV_STAMP): pyproject.toml
	@scripts/make_venv.sh dev $@
