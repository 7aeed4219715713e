# Every target starts from a ready environment; `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
TOOLS := .venv-tools
INSTALLED := $(VENV)/.installed
STAMP := $(VENV)/.setup-done
PACKAGES := models solver app isthmus
DATA ?= $(firstword $(wildcard ../shared/data) tests/published/data)
MINUTES ?= 10
EXAMPLES ?= 3
CHECKED := $(PACKAGES) tests $(wildcard benchmarks)

# Programs that start our programs over and over (tests) keep what Python has compiled, also where an image says otherwise.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help checks setup demo serve test test-all soak test-torch test-browser browser torch slurm test-slurm tools otel pins test-service test-contract sbom postgres lint fmt type arch golden golden-update bench bench-desk bench-scale bench-headline gaps bench-schedules ablation fuzz openapi image clean mcp test-mcp cluster test-cluster accuracy

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with isthmus in it; does nothing the second time

$(INSTALLED): requirements.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not installed: install Python 3.11 or name it with PYTHON=..." >&2; exit 1; }
	@echo "preparing $(VENV): two minutes the first time"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -r requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(STAMP): $(INSTALLED)
	@$(BIN)/isthmus plan llama-8b-single-building --time-limit 10 >/dev/null # the first plan compiles what is compiled once
	@touch $@

demo: setup ## plan the 405B job on two buildings, from start of the service to the exported trace
	$(BIN)/isthmus demo

serve: setup ## run the service on http://127.0.0.1:8000 (Swagger UI at /docs)
	$(BIN)/isthmus serve

test: $(INSTALLED) ## what CI runs: style, types, import contracts, every test that is not slow
	$(MAKE) --jobs=2 checks # while it is compiled, the checks run beside it
	$(BIN)/pytest -n 2 --dist worksteal -q -m "not slow" --ignore=tests/architecture

checks: $(STAMP) lint type arch

test-all: lint type arch postgres soak test-torch test-slurm test-service test-contract test-browser test-mcp test-cluster ## the same with the slow proofs, on a real Postgres (as root: network namespaces, Slurm), with PyTorch, in a browser
	$(BIN)/pytest -n 2 --dist worksteal -q --ignore=tests/architecture

torch: setup ## install PyTorch 2.13.0 for `isthmus replay` (a CPU build is enough: 200 MB to fetch, 0.8 GB on disk)
	@$(BIN)/python -c 'import importlib.metadata as m; raise SystemExit(m.version("torch").split("+")[0] != "2.13.0")' 2>/dev/null \
	 || $(BIN)/python -m pip install --quiet -r requirements-torch.txt

browser: setup ## install what drives a browser, and Chromium where there is none (Debian, as root)
	@$(BIN)/python -c 'import axe_playwright_python, playwright' 2>/dev/null \
	 || $(BIN)/python -m pip install --quiet -r requirements-browser.txt
	@command -v chromium chromium-browser google-chrome google-chrome-stable >/dev/null \
	 || { apt-get update -q && apt-get install -y -q --no-install-recommends chromium fonts-dejavu-core; }

test-browser: browser ## open the desk and reports in headless Chromium without a network: complaints, accessibility, overlap
	$(BIN)/pytest -q tests/browser

test-torch: torch ## run schedules and whole plans in PyTorch's runtime, 4 to 8 processes: times, ranking, losses; prints tables
	$(BIN)/pytest -q -s tests/torch

cluster: setup ## install the extra `cluster`: other machines share a search (`isthmus worker --search-pool`)
	@$(BIN)/python -c 'import distributed' 2>/dev/null || $(BIN)/python -m pip install --quiet -r requirements-cluster.txt

test-cluster: cluster ## the worker pool of a Dask cluster: losses, cancellation, certificates
	$(BIN)/pytest -q tests/cluster

mcp: setup ## install the extra `mcp`: `isthmus mcp` offers planning as tools
	@$(BIN)/python -c 'import mcp' 2>/dev/null || $(BIN)/python -m pip install --quiet -r requirements-mcp.txt

test-mcp: mcp ## the MCP server with the SDK's client in memory, against a running service
	$(BIN)/pytest -q tests/mcp_server

slurm: ## install Slurm where there is none (Debian, as root)
	@command -v slurmctld >/dev/null && command -v slurmd >/dev/null && command -v munged >/dev/null \
	 || { apt-get update -q && apt-get install -y -q --no-install-recommends slurm-wlm munge; }

test-slurm: setup slurm ## start slurmctld with 256 simulated nodes, submit a launch folder, compare what runs with the plan (as root)
	$(BIN)/pytest -q tests/slurm

tools: $(TOOLS)/.done ## a second environment: client generator, request generator, SBOM tool, Dockerfile linter

$(TOOLS)/.done: requirements-tools.txt
	@test -x $(TOOLS)/bin/python || $(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet -r requirements-tools.txt
	@touch $@

otel: setup ## install the extra `otel`: traces of requests and searches
	@$(BIN)/python -c 'import opentelemetry.sdk, opentelemetry.instrumentation.fastapi' 2>/dev/null \
	 || $(BIN)/python -m pip install --quiet -r requirements-otel.txt

test-service: otel tools ## traces in memory; a generated Python client against a running service; the SBOM; hadolint
	$(BIN)/pytest -q tests/service_tools

test-contract: setup tools ## 20,000 and more generated requests against the running service, stateful too (EXAMPLES=N for more of each)
	FUZZ_EXAMPLES=$(EXAMPLES) $(BIN)/pytest -q -s tests/fuzz

sbom: setup tools ## write sbom.json: what is installed in the environment, as CycloneDX
	$(TOOLS)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-file sbom.json $(BIN)/python

postgres: ## install a Postgres server where there is none (Debian, as root)
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || { apt-get update -q && apt-get install -y -q postgresql; }

soak: setup postgres ## random kills, full disks and clock jumps under 600 plans: nothing lost, doubled or stuck
	$(BIN)/python -m tests.soak --kills 200 --plans 500 --database postgres
	$(BIN)/python -m tests.soak --kills 40 --plans 100 --database sqlite

lint: $(INSTALLED) ## ruff: rules and layout of the code
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)

fmt: setup ## let ruff rewrite the layout
	$(BIN)/ruff check --fix $(CHECKED)
	$(BIN)/ruff format $(CHECKED)

type: $(INSTALLED) ## mypy, strict
	$(BIN)/mypy

arch: $(INSTALLED) ## import contracts, packaging, size budget, no hosts and no machine paths
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/architecture

golden: setup ## compare every golden file
	$(BIN)/pytest -q tests/golden

golden-update: setup ## rewrite the golden files; read the diff before committing it
	ISTHMUS_UPDATE_GOLDEN=1 $(BIN)/pytest -q tests/golden

bench: setup ## every model on every cluster of the catalogue: a judged plan or a typed reason; then routing, joint replay, cost, placement, load
	$(BIN)/python -m benchmarks.catalogue
	$(BIN)/python -m benchmarks.routing
	$(BIN)/python -m benchmarks.joint_replay
	$(BIN)/python -m benchmarks.cost
	$(BIN)/python -m benchmarks.placement
	$(BIN)/python -m benchmarks.service
	$(BIN)/python -m benchmarks.durable_submit
	$(BIN)/python -m benchmarks.start

bench-desk: browser ## processor time, long tasks and bytes of large plans' pages in Chromium (about 2 minutes)
	$(BIN)/python -m benchmarks.desk_pages

bench-scale: setup ## 16,384 to 1,048,576 GPUs: first judged plan, gap and memory against their targets (about 10 minutes)
	$(BIN)/python -m benchmarks.scale

bench-headline: setup ## our plans against five other ways of planning on 40 points of a broad grid (about 20 minutes)
	$(BIN)/python -m benchmarks.headline --points 40 --time-limit 20

gaps: setup ## which side of a gap is bad, the plan or the bound, on 12 points of the headline grid (about 35 minutes)
	$(BIN)/python -m benchmarks.gaps

bench-schedules: setup ## schedules against bounds and published generators
	$(BIN)/python -m benchmarks.schedules

ablation: setup ## every engine and bound taken out alone: what changes (SCHEDULES, POINTS, SECONDS; about an hour)
	$(BIN)/python -m benchmarks.ablation --schedules $(or $(SCHEDULES),4) --points $(or $(POINTS),6) --seconds $(or $(SECONDS),10)

fuzz: setup ## random requests under laws (SEED=N MINUTES=10): judge, bounds, INFEASIBLE, invariances; findings shrink to a JSON in fuzz-findings/
	$(BIN)/python -m tests.laws --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) --out fuzz-findings

accuracy: setup ## errors of the cost and network models against measured data (DATA=FOLDER names other rows; a folder with all of them writes docs/accuracy.md)
	$(BIN)/python -m benchmarks.accuracy $(DATA)

openapi: setup ## write openapi.json
	$(BIN)/isthmus openapi > openapi.json

image: ## build the container image
	docker build -f docker/Dockerfile -t isthmus:latest .

pins: setup ## write the hashes of what the requirements files pin (three platforms; minutes, needs the index)
	$(BIN)/python -m tests.architecture.pins requirements.txt requirements-otel.txt requirements-browser.txt requirements-mcp.txt requirements-cluster.txt requirements-tools.txt

clean: ## remove caches and the environment
	rm -rf $(VENV) $(TOOLS) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
