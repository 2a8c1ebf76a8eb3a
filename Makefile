# Two commands on a machine with Python 3.11, pip and make: `make tour` and `make test`. Both make .venv themselves.
BIN := .venv/bin
# Much of a test's time is waiting for processes: one worker more than there are cores keeps them busy.
WORKERS := $(shell n=$$(( $$(nproc) + 1 )); echo $$(( n > 8 ? 8 : n )))
PYTEST_ARGS ?= -q --numprocesses $(WORKERS)
SOURCES := src tests $(wildcard bench) $(wildcard examples)
export UV_PYTHON_DOWNLOADS := never

.DEFAULT_GOAL := help
.PHONY: help setup fmt check test crash bench tour lock clean

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

# Stamps: what is installed follows the two files that name it. The full set includes the light one.
.venv/.core: pyproject.toml requirements-dev.txt
	@.ci/setup core
	@touch $@

.venv/.dev: pyproject.toml requirements-dev.txt
	@.ci/setup dev
	@touch .venv/.core $@

setup: .venv/.dev ## make .venv with everything that developing needs
	@echo "ready: .venv"

tour: .venv/.core ## see an agent survive kill -9; offline, no key, under 20 s
	@$(BIN)/perdure tour

fmt: .venv/.dev ## format, and fix what can be fixed by itself
	@$(BIN)/ruff format $(SOURCES)
	@$(BIN)/ruff check --fix $(SOURCES)

check: .venv/.dev ## format, lint, strict types, floor plan
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

test: check ## check, then every test but the long ones
	@$(BIN)/pytest $(PYTEST_ARGS)

crash: .venv/.dev ## the long runs: every scenario stopped at every commit
	@$(BIN)/pytest -m long $(PYTEST_ARGS)

bench: .venv/.dev ## measure speed and size beside the bare engine
	@$(BIN)/python bench/run.py $(BENCH_ARGS)

lock: .venv/.dev ## write requirements-dev.txt anew from pyproject.toml (needs uv)
	@uv pip compile --quiet pyproject.toml --extra openai --extra anthropic --extra google --extra ssh --extra watch --extra agents --extra javascript --group dev --universal --python-version 3.11 \
		--no-header --no-annotate --output-file requirements-dev.txt

clean: ## remove everything that was made
	@rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build bench/results
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
