# The front door. `make` prints what stands behind it.

PYTHON ?= python3
JOBS ?= 4
ARGS ?=

BIN := .venv/bin
STAMP := .venv/.set-up

.DEFAULT_GOAL := help
.PHONY: help setup serve test tests test-full ci faults faults-quick faults-peers simulation fuzz kit sabotage check format docs release-check pictures bench lock clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## Create .venv with everything in it; quick when nothing changed

$(STAMP): pyproject.toml requirements.lock tools/setup tools/uv.lock
	@PYTHON='$(PYTHON)' tools/setup
	@touch $@

serve: setup ## Start scheduler, worker, API and dashboard; ARGS='--port 9000'
	@trap : INT TERM; $(BIN)/noonbell serve $(ARGS) || { code=$$?; \
	[ $$code -ne 5 ] || echo "another port: make serve ARGS='--port 9000'" >&2; exit $$code; }

test: setup ## Check and run the tests, both at once; ARGS='-k cron' narrows, JOBS=2 is gentler
	@$(MAKE) --no-print-directory --jobs=2 --keep-going check tests

# More processes than cores: many tests wait (tests/services/processes.py and order.py). Bytecode, with the rewritten asserts of the tests, is
# kept in build/. Tests that start `make` do not take part in our --jobs.
PYTEST := MAKEFLAGS= MFLAGS= PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(CURDIR)/build/pycache $(BIN)/python -m pytest \
	--processes $(JOBS)

# The few that fail are run once more, alone (decision 0110).
tests: setup
	tools/tests env $(PYTEST) $(ARGS)

test-full: setup ## The tests that `make test` leaves out or runs smaller: every store, look and width, long properties
	NOONBELL_TEST_FULL=1 $(AGAIN) env $(PYTEST) $(ARGS)

ci: setup ## `make test`, then as much of test-full and faults-quick as CI_MINUTES leaves time for
	@tools/ci

# AGAIN=tools/tests: what fails is run once more, alone, as `make test` does; `make ci` asks for it.
FAULTS := $(AGAIN) $(BIN)/python -m pytest -n $(JOBS) -m faults

faults: setup ## Kill points and chaos, against real databases (45 minutes); again: goes on where it was cut off
	$(FAULTS) tests/faults $(ARGS)

# pytest ends with 2 when the minutes are over, and with 1 at the first test that fails.
faults-quick: setup ## Five minutes of them: upkeep and kill points
	FAULTS_MINUTES=$(or $(FAULTS_MINUTES),5) $(FAULTS) tests/faults/test_hard_upkeep.py \
		tests/faults/test_kill_points.py --exitfirst $(ARGS) || [ $$? -eq 2 ]

faults-peers: setup ## Other schedulers and Noonbell killed alike: what each loses and doubles (70 minutes); ARGS='--quick'
	$(BIN)/python -m bench.faults $(ARGS)

simulation: setup ## Ten thousand histories of the simulation, figures at the end; again: goes on where it was cut off
	$(BIN)/python -W ignore -m noonbell.testing.simulation --seeds $(or $(SEEDS),0-9999) --jobs $(JOBS) \
		--keep build/simulation.jsonl $(ARGS)

fuzz: setup ## Throw made-up requests at real servers for 5 minutes; ARGS=60 for one
	tools/fuzz $(ARGS)

kit: setup ## Hold the manifests, Compose files and dashboard of deploy/ against the schemas of those who read them
	tools/kit $(ARGS)

sabotage: setup ## Remove each protection of the security map once: its tests must go red (an hour); again: goes on
	$(BIN)/python tools/sabotage $(ARGS)

check: setup ## Lint, formatting, types, import layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict src
	$(BIN)/lint-imports --no-logo

format: setup ## Lay the code out and mend what the linter can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: setup ## Build the site of docs/ into build/site; a link or an anchor that leads nowhere fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict $(ARGS)

release-check: setup ## Build the site, wheel and sdist, install them without a compiler, try them; nothing is published
	@$(MAKE) --no-print-directory docs ARGS=
	$(BIN)/python tools/release_check.py $(ARGS)

pictures: setup ## Every page of the dashboard as pictures in build/; ARGS='--only run'
	$(BIN)/python tools/pictures.py $(ARGS)

bench: setup ## Measure beside the peers and the raw limits
	$(BIN)/python -m bench $(ARGS)

lock: setup ## Choose new versions: write requirements.lock and the locks of deploy/ and tools/
	@tools/lock

clean: ## Remove .venv and every cache
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
