# make setup   .venv with the pinned dependencies and the `penstock` command
# make demo    wind turbines and smart houses through six queries, live, on Spark (ENGINE=local: in the process)
# make test    everything that must hold before a change is handed in: ruff, mypy, tests, docs
# make coverage   the same tests, and fails where they run too little of the package; takes about twice as long
# make docs    the site of the docs in build/site; a warning is an error
# make pictures   the pictures of the docs, drawn from what queries answer
# make peers   installs other stream processors for `penstock bench compare`, in .peers; takes some minutes
# make spark   the whole behavioural suite on Spark itself, not a sample of it
# make cluster   the core of the suite on Spark's standalone cluster of separate processes, kills of all of them, a disk
#              that is full, and a database in an object store, whose emulator it installs in .objects; takes half an hour
# make kills   kills a database on a directory, one on Spark, Java and Python workers of one, a streaming query on Spark and
#              `penstock run` 50 times each and a server 20 times, stops `penstock run` by Ctrl-C 50 times, lets threads
#              work on Spark for a minute, and compares what they answered; takes hours
# make fuzz    the generated tests with new random cases until one fails; MINUTES=60: at most an hour
# make sessions   whole sessions of statements, right and wrong ones, with new random cases; MINUTES as for fuzz
# make soak    a long mixed load on the local engine, and what of memory, threads and files grows; MINUTES, by default 10
SHELL := /bin/bash
PYTHON ?= python3
ENGINE ?= spark
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LONG := --timeout 3600 -o faulthandler_timeout=7200  # a single test may take long

.PHONY: setup demo test coverage docs peers pictures spark cluster kills fuzz sessions soak clean
.DEFAULT_GOAL := setup

setup: $(READY)

$(READY): requirements.lock pyproject.toml scripts/setup_venv.sh scripts/ensure_java.sh
	@PYTHON="$(PYTHON)" scripts/setup_venv.sh $(VENV)
	@scripts/ensure_java.sh
	@touch $@

demo: $(READY)
	@$(BIN)/penstock demo --engine $(ENGINE) || [ $$? -eq 130 ]  # Ctrl-C is no error

test: $(READY)
	@scripts/test.sh $(BIN)

coverage: $(READY)
	@scripts/coverage.sh $(BIN)

docs: $(READY)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements-docs.lock
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "docs: build/site/index.html"

pictures: $(READY)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements-docs.lock
	@$(BIN)/python -m scripts.pictures
	@$(BIN)/python -m scripts.grammar

peers:
	@PYTHON="$(PYTHON)" scripts/peers.sh .peers

spark: $(READY)
	PENSTOCK_ALL_ON_SPARK=1 PENSTOCK_EXAMPLES=1 $(BIN)/python -m pytest -q $(LONG) tests/behaviour tests/cases tests/docs tests/spark

cluster: $(READY) .objects/bin/moto_server
	PENSTOCK_ON_CLUSTER=1 PENSTOCK_ONE_OF=5 $(BIN)/python -m pytest -q $(LONG) -m xdist_group tests/cases tests/behaviour
	PENSTOCK_ON_CLUSTER=1 $(BIN)/python -m pytest -q $(LONG) tests/spark/test_standalone.py tests/spark/test_cluster.py tests/spark/test_full.py \
	  tests/spark/test_object_store.py tests/spark/test_deaths.py tests/spark/test_live_generated.py \
	  tests/spark/test_internals.py tests/spark/test_threads.py

.objects/bin/moto_server:
	@$(PYTHON) -m venv .objects
	@.objects/bin/python -m pip install -q --disable-pip-version-check 'moto[server]==5.2.5'

kills: $(READY)
	PENSTOCK_KILLS=50 $(BIN)/python -m pytest -q $(LONG) tests/durable/test_kills.py
	PENSTOCK_KILLS=50 $(BIN)/python -m pytest -q $(LONG) tests/spark/test_kills.py tests/spark/test_run_killed.py \
	  tests/spark/test_threads.py
	$(BIN)/python -m benchmarks.server --only kills

fuzz: $(READY)
	@$(BIN)/python scripts/fuzz.py $(if $(MINUTES),--minutes $(MINUTES)) \
	  tests/generated tests/cql tests/graph/test_law.py tests/operators tests/state tests/plan tests/kernels tests/durable

sessions: $(READY)
	@$(BIN)/python scripts/fuzz.py $(if $(MINUTES),--minutes $(MINUTES)) tests/sessions

soak: $(READY)
	@$(BIN)/python -m benchmarks.soak $(if $(MINUTES),--minutes $(MINUTES))

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage htmlcov .coverage.*
	find src tests benchmarks experiments -name __pycache__ -type d -prune -exec rm -rf {} +
