# `make` alone prints what each target does. Needs python3 (3.11 or newer), git and the package index; nothing else.
PYTHON ?= python3
JOBS ?= 2
BIN := .venv/bin
.DEFAULT_GOAL := help
# Maturin would fetch a Rust toolchain by itself where there is none.
export MATURIN_NO_INSTALL_RUST=1
.PHONY: help install native demo demo-cluster demo-inventory test test-long compat sim lint format bench bench-spark docs reference wheel lock clean
# About; what goes on for a fixed time or number of seeds is most of it.
LONG_MINUTES := cluster 95, sim 70, spark 40, controller 30, replication 15, hostile 13, compat 10, faults 10, raft 10, \
  consistency 8, broker 5
# Modules of other places have no business in .venv.
unexport PYTHONPATH PYTHONHOME
# Every node that a test starts would compile itself anew: 0.2 s of it.
unexport PYTHONDONTWRITEBYTECODE

help:  ## print this
	@echo "Duramen: make targets"
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/  \1|\2/' | awk -F'|' '{printf "%-13s %s\n", $$1, $$2}'
	@echo "Parts of make test-long, in minutes on 2 cores: $(LONG_MINUTES); any other at most 5"

install:  ## make .venv from the lock files; nothing to do when nothing has changed
	@command -v "$(PYTHON)" >/dev/null || { echo "make install: there is no $(PYTHON): install Python 3.11 or newer" \
	  "(Debian and Ubuntu: apt-get install python3-venv), or name one: make PYTHON=/path/to/python3 ..." >&2; exit 1; }
	@"$(PYTHON)" tools/install.py

native: install  ## build the native package again and install it, or say why that cannot be
	@$(BIN)/python tools/native.py must

demo: install  ## 336,776 flights from NATS through the log to Kafka consumers and Spark, with a kill -9 in between
	@$(BIN)/python -m duramen.demo $(DEMO)

demo-cluster: install  ## the flights through three nodes, one of them killed and another paused while they flow
	@$(BIN)/python -m duramen.demo.cluster $(DEMO)

demo-inventory: install  ## TOPICS=10000000 topics in one node's inventory, searched, renamed, moved, killed and checked
	@$(BIN)/python -m duramen.demo.inventory $(if $(TOPICS),--topics $(TOPICS)) $(DEMO)

test: install  ## every test that `main` has to pass, JOBS=2 files of them at once (about 12 minutes on 2 cores)
	@$(BIN)/python tools/kcat.py
	@$(BIN)/python -m pytest -m "not long" -n $(JOBS) --dist loadfile --no-loadscope-reorder $(TESTS)

test-long: install  ## the tests that take longer, and property tests with new examples (PART="spark faults": these folders)
	@$(BIN)/python tools/kcat.py
	@$(BIN)/python -m pytest -m "long or hypothesis" --hypothesis-profile=search $(or $(TESTS),$(addprefix tests/,$(PART)))

compat: install  ## lead every Kafka client through the list, record the results, write docs/compatibility.md
	@$(BIN)/python tools/kcat.py
	@$(BIN)/python tools/compat.py --run $(TESTS)

sim: install  ## simulated crashes of a node and of clusters (SEEDS=1000 or FROM-TO; SEED=N runs a node again; COMPILED=1: clusters twice as fast)
	@$(BIN)/python -m duramen.sim $(if $(SEED),--seed $(SEED) --trace $(or $(TRACE),-),--seeds $(or $(SEEDS),1000))
	@$(if $(SEED),,$(BIN)/python $(if $(COMPILED),tools/compiled.py,-m duramen.sim) --cluster --seeds $(or $(SEEDS),1000))

lint: install  ## ruff, mypy --strict, the layers, whether the generated pages are up to date; rustfmt and clippy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@PYTHONPATH=. $(BIN)/lint-imports --no-logo 2>/dev/null || PYTHONPATH=. $(BIN)/lint-imports
	@$(BIN)/python tools/reference.py --check
	@$(BIN)/python tools/compat.py --check
	@$(BIN)/python tools/native.py lint

format: install  ## format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: install  ## measure; with Java and Maven beside Apache Kafka too (BENCH="--peer kafka …")
	@$(BIN)/duramen bench all $(BENCH)

bench-spark: install  ## measure Spark beside its own Kafka source on Apache Kafka; needs Java and Maven (BENCH="--rounds 1 …")
	@$(BIN)/duramen bench spark --peer kafka $(BENCH)

docs: install  ## build the docs site into build/site, without a warning or a dead link
	@$(BIN)/python tools/site.py

reference: install  ## write the generated pages of docs/ anew
	@$(BIN)/python tools/reference.py
	@$(BIN)/python tools/compat.py

wheel: install  ## build dist/duramen-*.whl, and where Rust is installed dist/duramen_native-*.whl for manylinux
	@$(BIN)/python -m hatchling build -t wheel -d dist
	@$(BIN)/python tools/native.py wheel

lock: install  ## resolve the dependencies anew
	@$(BIN)/python tools/lock.py

clean:  ## remove .venv and everything that tools leave behind
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist duramen-demo duramen-demo-cluster duramen-demo-inventory
