# Everything a newcomer types. `make` alone tells what there is.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:

VENV ?= .venv
# First port of the local stack; two copies run side by side on bases 100 apart.
PORT_BASE ?= 18000
# Nodes of the local stack.
NODES ?= 3
# What `make load` plays: steady, ramp, storm, node-kill or rolling-deploy.
SCENARIO ?= steady
# More options: for `make demo` and `make bench`, see OPTIONS=--help; for `make test` and `make check`, pytest's.
OPTIONS ?=
# Cases for `make bench`, with commas between them; all but hostile if empty. See `make bench OPTIONS=--list`.
ONLY ?=
# Where `make bench` writes what it measured.
BENCH_JSON ?= .local/bench/results.json
# Where `make dist` writes.
DIST ?= dist
# Where `make docs` writes.
SITE ?= .local/site
# Where `make sbom` writes.
SBOM ?= .local/sbom/session-gateway.cdx.json
CORES := $(shell getconf _NPROCESSORS_ONLN)
# Processes for the tests that may run side by side: more than two a core, because they wait half of their time.
JOBS ?= $(shell echo $$(( 2 * $(CORES) + 2 )))
# Clusters that are tested at a time, one more than there are cores: with more, none has the time that its limits assume.
CLUSTERS ?= $(shell echo $$(( $(CORES) + 1 )))

# Bytecode is kept: tests start hundreds of interpreters, and each would compile the same files again.
unexport PYTHONDONTWRITEBYTECODE
PYTHON ?= $(shell for each in python3.13 python3.12 python3.11 python3 python; do \
	"$$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v "$$each"; break; }; done; true)
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
LOCAL := $(BIN)/python -m gateway.local

.PHONY: help
help: ## Tell what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo '  Variables: PORT_BASE=$(PORT_BASE) NODES=$(NODES) VENV=$(VENV) OPTIONS=…'

.PHONY: venv install
venv: $(INSTALLED) ## Make the virtual environment with everything in it (also called install)
install: venv

# A stamp, so that the second time costs nothing.
$(INSTALLED): pyproject.toml clients/python/pyproject.toml constraints.txt
	@if [ -z "$(PYTHON)" ]; then echo 'Python 3.11 or newer is needed and was not found; install it, or give PYTHON=/path/to/it' >&2; exit 1; fi
	@echo "Installing into $(VENV) with $(PYTHON) …"
	@[ -x $(BIN)/python ] || "$(PYTHON)" -m venv $(VENV) || \
		{ rm -rf $(VENV); echo 'The module venv does not work; on Debian and Ubuntu: apt-get install python3-venv' >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt pip
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --build-constraint constraints.txt \
		--group dev --editable clients/python --editable .
	@touch $@

.PHONY: system
system: # redis-server, haproxy and a C compiler
	@scripts/system-packages

.PHONY: demo
demo: venv system ## Watch clients keep their sessions while nodes are killed (about a minute)
	@$(LOCAL) demo --port-base $(PORT_BASE) --nodes $(NODES) $(OPTIONS)

.PHONY: zones
zones: venv system ## Watch three clusters send each other what their clients want (about a minute)
	@$(LOCAL) zones --port-base $(PORT_BASE) $(OPTIONS)

.PHONY: demo-pipeline
demo-pipeline: venv system ## Kill a node, then have the pipeline tell what happened to whom (about three minutes)
	@scripts/system-packages java
	@$(BIN)/python -m scripts.demo_pipeline --port-base $(PORT_BASE) --nodes $(NODES) $(OPTIONS)

.PHONY: up
up: venv system ## Start Redis, nodes and HAProxy, and leave them running
	@$(LOCAL) up --port-base $(PORT_BASE) --nodes $(NODES) $(OPTIONS)

.PHONY: observe
observe: venv ## The same with a Prometheus that watches it, with all alerts
	@scripts/system-packages prometheus
	@$(LOCAL) up --port-base $(PORT_BASE) --nodes $(NODES) --prometheus $(OPTIONS)

.PHONY: down
down: venv ## Stop what `make up` started
	@$(LOCAL) down --port-base $(PORT_BASE) $(OPTIONS)

.PHONY: bench-micro
bench-micro: venv ## Measure the core alone: codec, selections, outbox, resend buffer
	@$(BIN)/python -m pytest -c benchmarks/micro/pytest.ini benchmarks/micro $(OPTIONS)

.PHONY: load
load: venv system ## Put the stack under load and judge it by loadtests/slo.toml (about a minute)
	@$(BIN)/python -m loadtests --scenario $(SCENARIO) --port-base $(PORT_BASE) --nodes $(NODES) $(OPTIONS)

.PHONY: load-ui
load-ui: venv system ## The same with locust's web page, on 127.0.0.1
	@$(BIN)/python -m loadtests --ui --port-base $(PORT_BASE) --nodes $(NODES) $(OPTIONS)

.PHONY: test
test: venv ## Check everything, and tell at the end how each part went: style, types, import contracts, all tests
	@scripts/system-packages prometheus prometheus-blackbox-exporter node npm chromium java
	@$(BIN)/python -m scripts.checks --jobs $(JOBS) --clusters $(CLUSTERS) test -- $(OPTIONS)

.PHONY: test-thorough
test-thorough: venv ## Check at length and on other servers what `make test` checks once (takes longer than that)
	@scripts/system-packages prometheus prometheus-blackbox-exporter node npm chromium java
	@$(BIN)/python -m scripts.checks --jobs $(JOBS) --clusters $(CLUSTERS) thorough -- $(OPTIONS)

.PHONY: check
check: venv ## Check while working: style, types, import contracts, the tests that start no other program
	@$(BIN)/python -m scripts.checks --jobs $(CORES) check -- $(OPTIONS)

.PHONY: fuzz
fuzz: venv ## Throw strange input at a node and its files, ten minutes each (OPTIONS="session --seconds 60 --seed 7")
	@$(BIN)/python -m tests.fuzz $(OPTIONS)

.PHONY: chaos
chaos: venv system ## Break a cluster at random under load, and judge what it lost (OPTIONS="--grid sentinel --seed 7 --minutes 10")
	@$(BIN)/python -m tests.chaos $(OPTIONS)

.PHONY: autobahn
autobahn: venv ## Run the Autobahn WebSocket test suite against the client port (needs Python 2.7; about a minute)
	@$(BIN)/python -m tests.autobahn $(OPTIONS)

.PHONY: bench
bench: venv system ## Measure the gateway and its peers in turn (about 40 minutes; ONLY=fanout for one case)
	@scripts/bench-packages
	@$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY)) --json $(BENCH_JSON) $(OPTIONS)

.PHONY: bench-publish
bench-publish: venv ## Put what `make bench` measured into README and docs
	@$(BIN)/python -m benchmarks.publish $(BENCH_JSON) $(OPTIONS)

.PHONY: flames
flames: venv system ## Draw where a node spends its CPU, into docs (about two minutes)
	@$(BIN)/python -m benchmarks.flamegraph --py-spy $(BIN)/py-spy $(OPTIONS)

.PHONY: dashboards
dashboards: venv ## Write Grafana's dashboards, which are described in scripts/dashboards
	@$(BIN)/python -m scripts.dashboards write

.PHONY: requirements
requirements: venv ## Pin anew what the image installs, with hashes, to the versions of constraints.txt
	@$(BIN)/python -m scripts.requirements

.PHONY: images check-images
images: venv ## Pin the images of others to what their tags are in the registry now (needs crane, skopeo or docker)
	@$(BIN)/python -m scripts.images pin
check-images: venv ## Compare these pins with the registry
	@$(BIN)/python -m scripts.images check

.PHONY: docs
docs: venv ## Make the documentation site, with a search, into SITE; fails at links that lead nowhere
	@mkdir -p $(dir $(SITE))
	@$(BIN)/python -m scripts.site $(SITE)

.PHONY: dist
dist: venv ## Make what others install, into DIST: wheels of the server and of the Python client, tarball of the JavaScript client
	@scripts/system-packages node npm
	@$(BIN)/python -m scripts.dist $(DIST)

.PHONY: sbom
sbom: venv ## Say what is in the image, as CycloneDX, into SBOM
	@mkdir -p $(dir $(SBOM))
	@$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --short-PURLs --output-reproducible \
		--output-format JSON --output-file $(SBOM) deploy/docker/requirements.txt
	@echo $(SBOM)

.PHONY: lint
lint: venv ## Check style, formatting, types and import contracts
	@$(BIN)/python -m scripts.checks lint

.PHONY: fmt
fmt: venv ## Format the code and mend what can be mended
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

.PHONY: clean
clean: ## Remove what the tools left; not the virtual environment, not a running stack
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage* build dist *.egg-info
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
