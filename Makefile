# One command a chore, the same by hand and in CI.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/pytest

# Two at a time, in one checkout, install one after the other; what a target needs is judged when its turn comes.
LOCK := $(if $(shell command -v flock),flock Makefile)

# The unit tests in lanes, as many at a time as there are cores: each imports what it tests, and not what the others do.
FOLDERS := gateway worker deploy
UNIT := $(FOLDERS:%=unit-%) unit-others
TOGETHER = @$(MAKE) --no-print-directory --jobs=$(shell nproc) --output-sync=target

.PHONY: installed dev serve test check lint unit $(UNIT) e2e faults overload soak test-faults bench bench-fair bench-engine conformance openapi format clean

serve: installed                 ## install, get and build the embedded model, serve on 127.0.0.1:8017
	$(BIN)/ostraka serve $(FLAGS)

test: dev                        ## the whole suite: unit, contract, integration, faults, the real model
	$(PYTEST) -n 2 --dist loadgroup --hypothesis-profile=thorough

check: dev                       ## the lints, and beside them the unit tests
	$(TOGETHER) $(UNIT) lint

unit: dev                        ## no processes but the tests' own: the rest is for `make test`
	$(TOGETHER) $(UNIT)

$(FOLDERS:%=unit-%): unit-%: dev
	$(PYTEST) tests/unit/$* -q -p no:schemathesis

unit-others: dev
	$(PYTEST) tests/unit tests/contract $(FOLDERS:%=--ignore=tests/unit/%) -q -p no:schemathesis

lint: dev                        ## formatting, lints, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

e2e: dev                         ## the real model behind the real command
	$(PYTEST) -m e2e

faults: dev                      ## each fault under steady load, and what became of every request: two minutes
	$(BIN)/python -m benchmarks.faults $(FLAGS)

overload: dev                    ## three times the capacity: what is answered, and how soon the rest is refused
	$(BIN)/python -m benchmarks.faults.overload $(FLAGS)

soak: dev                        ## half an hour of mixed load and random faults: nothing lost, nothing that grows
	$(BIN)/python -m benchmarks.faults.soak $(FLAGS)

test-faults: dev                 ## the tests that kill, stop and starve real processes
	$(PYTEST) -m faults

bench: dev                       ## throughput served against the engine alone; see benchmarks/README.md
	$(BIN)/python -m benchmarks.served_share

bench-fair: dev                  ## what one costly client of each kind does to the others' p99
	$(BIN)/python -m benchmarks.fair_share

bench-engine: dev                ## the bare engine by call shape: int8, fp32, the machine's peak, kept states, memory
	$(BIN)/python -m benchmarks.engine_shapes
	$(BIN)/python -m benchmarks.engine_memory

conformance: dev                 ## all of jevcompat and jevbench-mini's batch trials with the real model
	$(BIN)/python -m benchmarks.conformance

openapi: installed               ## prints the OpenAPI document anew; a test compares it
	$(BIN)/python -m ostraka_gateway.openapi > docs/openapi.json

format: dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

installed dev:
	@$(LOCK) $(MAKE) --no-print-directory $(VENV)/.$@

clean:
	rm -rf $(VENV)

# pip before anything else: the one that comes with Python 3.11 knows neither dependency groups nor resumed downloads.
$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'

$(VENV)/.installed: pyproject.toml constraints.txt $(wildcard worker/ostraka_worker/kernels/*.[ch]) | $(VENV)/bin/pip
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(BIN)/pip install --quiet --constraint constraints.txt --group dev
	touch $@
