# The front door. `make` prints what stands behind it.

PYTHON ?= python3
JOBS ?= 2
ARGS ?=

BIN := .venv/bin
STAMP := .venv/.set-up

.DEFAULT_GOAL := help
.PHONY: help setup serve test faults fuzz check format pictures bench lock clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## Create .venv with everything in it; quick when nothing changed

$(STAMP): pyproject.toml requirements.lock tools/setup tools/uv.lock
	@PYTHON='$(PYTHON)' tools/setup
	@touch $@

serve: setup ## Start scheduler, worker, API and dashboard; ARGS='--port 9000'
	$(BIN)/noonbell serve $(ARGS)

test: check ## Check, then run all tests; ARGS='-k cron' narrows, JOBS=4 widens
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

faults: setup ## Kill points and chaos, against real databases (15 minutes or more); again: goes on where it was cut off
	$(BIN)/python -m pytest tests/faults -m faults $(ARGS)

fuzz: setup ## Throw made-up requests at real servers for 5 minutes; ARGS=60 for one
	tools/fuzz $(ARGS)

check: setup ## Lint, formatting, types, import layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict src
	$(BIN)/lint-imports --no-logo

format: setup ## Lay the code out and mend what the linter can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

pictures: setup ## Every page of the dashboard as pictures in build/; ARGS='--only run'
	$(BIN)/python tools/pictures.py $(ARGS)

bench: setup ## Measure beside the peers and the raw limits
	$(BIN)/python -m bench $(ARGS)

lock: setup ## Choose new versions: write requirements.lock, tools/uv.lock and tools/fuzz.lock
	@tools/lock

clean: ## Remove .venv and every cache
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
