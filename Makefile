# Each target sets up what it needs in .venv and is quick the second time. A bare machine needs Python 3.11 or newer with pip, and make.
#   make demo         a guided run on the light core: no model, no key, no network once installed
#   make test         the tests of one process: no torch, browser or database server; about five minutes on two cores
#   make test-all     every test: `make test` and then `make test-rest`
#   make test-rest    what `make test` leaves out: processes that are killed, PostgreSQL, Chromium, npm clients, training
#   make test-fast    the unit tier, about a minute
#   make coverage     branch coverage of the kernel and of the rest
#   make format       ruff's formatter and its safe fixes
#   make test-full    the tests and the full-size figures
#   make test-frameworks  the adapters, each with its framework in an environment of its own
#   make test-qdrant  the contract of the Qdrant index on a real server: the one $MEMAGENT_TEST_QDRANT_URL names, or docker's
#   make lint         ruff, pyright, the import contracts, the ceilings of budgets.toml
#   make bench        the benchmarks; each prints a table and its JSON
#   make train-smoke  a training run that learns, its random-reward control and their report in runs/smoke (made anew each time), about 100 s of CPU each on two cores
#   make site         the documentation as a site in build/site
#   make pictures     the documentation's pictures and charts, made anew
#   make gpu-check    whether training works on the GPU here: bf16, adapters, one update, a table of batch widths
#   make constraints  renew the pinned versions
#   make lock         renew deploy/requirements.txt, the image's packages with their hashes
#   make sbom         what the image installs, as CycloneDX, in build/memagent.cdx.json
#   make audit        known vulnerabilities of what the image installs; asks the package index
#   make clean        remove .venv, builds and caches

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# A worker that has nothing left takes tests from the other; dealt out in chunks, one worker ends minutes before.
PYTEST_ARGS ?= -n 2 --dist worksteal
# What `make test` leaves to `make test-rest`.
HEAVY := process or postgres or browser or torch
BENCHMARKS ?= $(filter-out benchmarks/measured.py benchmarks/peers.py benchmarks/tokens.py,$(sort $(wildcard benchmarks/*.py)))

# The constraints also bind what pip installs to build our own wheel.
export PIP_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
INSTALL := $(BIN)/python -m pip install --progress-bar off -c constraints.txt
NODE_MODULES := clients/typescript/node_modules/.package-lock.json
METADATA := pyproject.toml constraints.txt

.PHONY: demo test test-all test-rest test-fast coverage format test-full test-frameworks test-qdrant lint bench bench-peers train-smoke gpu-check pictures site clean constraints lock sbom audit
.DELETE_ON_ERROR:

demo: $(VENV)/.core
	$(BIN)/python examples/demo.py

test: $(VENV)/.test
	$(BIN)/python -m pytest -m "not ($(HEAVY)) and not full" $(PYTEST_ARGS)

test-all: test
	$(MAKE) test-rest

test-rest: $(VENV)/.dev $(NODE_MODULES)
	$(BIN)/python -m pytest -m "($(HEAVY)) and not full" $(PYTEST_ARGS)

test-fast: $(VENV)/.test
	$(BIN)/python -m pytest tests/unit -m "not ($(HEAVY)) and not full" $(PYTEST_ARGS)

format: $(VENV)/.dev
	$(BIN)/ruff check --fix --quiet
	$(BIN)/ruff format

coverage: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not full and not torch and not browser" --cov --cov-report= $(PYTEST_ARGS)
	$(BIN)/python scripts/coverage_report.py --kernel-at-least 95

test-frameworks: $(VENV)/.dev
	$(BIN)/python scripts/framework_tests.py --folder build/frameworks

test-full: $(VENV)/.dev $(NODE_MODULES)
	HYPOTHESIS_PROFILE=full MEMAGENT_KILL_CYCLES=200 MEMAGENT_FUZZ_SCALE=4 $(BIN)/python -m pytest -m "full or not full" --timeout 3600 $(PYTEST_ARGS)

QDRANT_COMPOSE := docker compose --file deploy/compose.qdrant.yaml

test-qdrant: $(VENV)/.dev
	@if [ -n "$$MEMAGENT_TEST_QDRANT_URL" ]; then :; \
	elif docker compose version >/dev/null 2>&1 && docker info >/dev/null 2>&1; then \
	  trap '$(QDRANT_COMPOSE) down --volumes' EXIT; trap 'exit 130' INT TERM; \
	  $(QDRANT_COMPOSE) up --detach --wait || exit 1; export MEMAGENT_TEST_QDRANT_URL=http://127.0.0.1:6399; \
	else echo "no Qdrant to test on: start docker (with its compose plugin), or set MEMAGENT_TEST_QDRANT_URL to a server's address"; exit 1; fi; \
	$(BIN)/python -m pytest tests/stores/test_qdrant_over_http.py -k real_server

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/structure.py --check
	$(BIN)/python scripts/trips.py --check
	$(BIN)/python scripts/pages.py --check

bench: $(VENV)/.dev
	@for file in $(BENCHMARKS); do echo "== $$file"; $(BIN)/python $$file || exit 1; done

bench-peers: build/peers/.done
	build/peers/bin/python benchmarks/peers.py

build/peers/.done: $(METADATA)
	$(PYTHON) -m venv build/peers
	PIP_CONSTRAINT= build/peers/bin/python -m pip install -qq mem0ai -e '.[service]'
	@touch $@

train-smoke: $(VENV)/.train
	rm -rf runs/smoke runs/smoke_control
	@began=$$(date +%s); export OMP_NUM_THREADS=1; \
	  $(BIN)/memagent-train examples/training/smoke_control.toml >/dev/null 2>&1 & control=$$!; \
	  $(BIN)/memagent-train examples/training/smoke.toml && wait $$control && \
	  echo "the run and its control took $$(( $$(date +%s) - began )) s" && \
	  $(BIN)/memagent-train report runs/smoke --control runs/smoke_control

gpu-check: $(VENV)/.train
	$(BIN)/python scripts/gpu_check.py

# The pictures of the documentation, and the findings and charts of its page "How good is it"; needs Chromium.
pictures: $(VENV)/.dev
	$(BIN)/python scripts/pictures.py
	$(BIN)/python scripts/good_page.py

site: $(VENV)/.dev
	$(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) build dist *.egg-info .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Where Python comes without ensurepip, its own pip fills the new environment.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "memagent needs Python 3.11 or newer; say make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV) || { $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install -qq pip; }

$(VENV)/.core: $(METADATA) | $(BIN)/python
	$(INSTALL) -e .
	@touch $@

$(VENV)/.test: $(METADATA) | $(BIN)/python
	$(INSTALL) -e '.[test]'
	@touch $(VENV)/.core $@

# torch goes first and by itself: with the pinned version in place nothing later asks for another build of it.
$(VENV)/.dev: $(METADATA) | $(BIN)/python
	$(INSTALL) torch
	$(INSTALL) -e '.[dev]'
	@touch $(VENV)/.core $(VENV)/.test $(VENV)/.train $@

$(VENV)/.train: $(METADATA) | $(BIN)/python
	$(INSTALL) torch
	$(INSTALL) -e '.[train]'
	@touch $(VENV)/.core $@

# The npm clients and the TypeScript client; without npm, or where it fails, their tests are skipped.
$(NODE_MODULES): clients/typescript/package-lock.json
	@if command -v npm >/dev/null && (cd clients/typescript && npm ci --no-audit --no-fund --loglevel=error >/dev/null && npm run --silent build >/dev/null); \
	  then touch $@; else echo "no npm packages: the tests of npm clients will be skipped"; fi

# Renew the pins: install everything into a fresh environment and write down what came.
constraints:
	rm -rf build/pins
	$(PYTHON) -m venv build/pins
	PIP_CONSTRAINT= build/pins/bin/python -m pip install -qq 'torch==2.13.0'
	PIP_CONSTRAINT= build/pins/bin/python -m pip install -qq hatchling editables '.[all,dev]'
	$(PYTHON) scripts/freeze.py build/pins/bin/python > build/constraints.txt
	mv build/constraints.txt constraints.txt

lock: $(VENV)/.dev
	$(BIN)/uv pip compile -q --no-header --no-annotate --generate-hashes --universal --python-version 3.11 \
	  --extra service --extra postgres --extra qdrant --extra mcp -c constraints.txt pyproject.toml -o deploy/requirements.txt

sbom: $(VENV)/.dev
	mkdir -p build
	$(BIN)/python scripts/sbom.py > build/memagent.cdx.json

audit: $(VENV)/.dev
	$(BIN)/uv tool run -q pip-audit --strict --disable-pip --require-hashes -r deploy/requirements.txt
