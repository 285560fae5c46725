# GpuTask. `make` alone lists what can be done here.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Two stamps: what runs the product, and what tests it. Both come from locks with hashes.
.venv/runtime: requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing the runtime dependencies into .venv"
	@$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes --only-binary :all: -r requirements.lock
	@$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.venv/dev: requirements-dev.lock .venv/runtime
	@echo "installing the development tools into .venv"
	@$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes --only-binary :all: -r requirements-dev.lock
	@touch $@

.PHONY: demo
demo: .venv/runtime ## set up, then the HyperQueue stream on the embedded server: live table, summary
	@$(BIN)/gputask demo

.PHONY: test
test: .venv/dev ## set up, then every test that exists except the long ones
	@$(BIN)/python -m pytest -m 'not long'

.PHONY: test-fast
test-fast: .venv/dev ## the tests without the real control plane
	@$(BIN)/python -m pytest -m 'not long'

.PHONY: test-long
test-long: .venv/dev ## deeper bounds of the protocol model and the long replays
	@$(BIN)/python -m pytest -m long

.PHONY: check
check: .venv/dev ## format, lint, types, import contracts, generated files up to date, manifests valid
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m gputask.api.crds --check crds
	@$(BIN)/gputask plan -f examples/hyperqueue-stream -o json > /dev/null

.PHONY: format
format: .venv/dev ## format the code and regenerate crds/
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix
	@$(BIN)/python -m gputask.api.crds crds

.PHONY: bench
bench: .venv/dev ## the benchmark tables of docs/performance.md: planner, then operator (10 minutes)
	@$(BIN)/python tests/bench/bench_planner.py
	@PYTHONPATH=tests $(BIN)/python tests/bench/bench_operator.py

.PHONY: lock
lock: .venv/dev ## renew requirements*.lock: hashes, no index address
	@$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check uv
	@for group in build:requirements.lock dev:requirements-dev.lock; do \
	  $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --no-emit-find-links --no-annotate --no-header --group $${group%%:*} pyproject.toml -o $${group##*:}; done

.PHONY: clean
clean: ## remove the virtual environment and all caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
