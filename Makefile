# One command a chore, the same by hand and in CI.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/pytest

.PHONY: serve test check lint unit e2e faults overload soak test-faults bench bench-fair bench-engine conformance openapi format clean

serve: $(VENV)/.installed        ## install, get and build the embedded model, serve on 127.0.0.1:8017
	$(BIN)/ostraka serve $(FLAGS)

test: $(VENV)/.dev               ## the whole suite: unit, contract, integration, faults, the real model
	$(PYTEST) -n 2 --dist loadgroup --hypothesis-profile=thorough

check: $(VENV)/.dev              ## the lints, and beside them the unit tests
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint unit

unit: $(VENV)/.dev               ## no processes but the tests' own: the rest is for `make test`
	$(PYTEST) tests/unit tests/contract -q -n logical --maxprocesses 8 --dist loadgroup -p no:schemathesis

lint: $(VENV)/.dev               ## formatting, lints, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

e2e: $(VENV)/.dev                ## the real model behind the real command
	$(PYTEST) -m e2e

faults: $(VENV)/.dev             ## each fault under steady load, and what became of every request: two minutes
	$(BIN)/python -m benchmarks.faults $(FLAGS)

overload: $(VENV)/.dev           ## three times the capacity: what is answered, and how soon the rest is refused
	$(BIN)/python -m benchmarks.faults.overload $(FLAGS)

soak: $(VENV)/.dev               ## half an hour of mixed load and random faults: nothing lost, nothing that grows
	$(BIN)/python -m benchmarks.faults.soak $(FLAGS)

test-faults: $(VENV)/.dev        ## the tests that kill, stop and starve real processes
	$(PYTEST) -m faults

bench: $(VENV)/.dev              ## throughput served against the engine alone; see benchmarks/README.md
	$(BIN)/python -m benchmarks.served_share

bench-fair: $(VENV)/.dev         ## what one costly client of each kind does to the others' p99
	$(BIN)/python -m benchmarks.fair_share

bench-engine: $(VENV)/.dev       ## the bare engine by call shape: int8, fp32, the machine's peak, kept states, memory
	$(BIN)/python -m benchmarks.engine_shapes
	$(BIN)/python -m benchmarks.engine_memory

conformance: $(VENV)/.dev        ## all of jevcompat and jevbench-mini's batch trials with the real model
	$(BIN)/python -m benchmarks.conformance

openapi: $(VENV)/.installed      ## prints the OpenAPI document anew; a test compares it
	$(BIN)/python -m ostraka_gateway.openapi > docs/openapi.json

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

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
