# Everything that one types here. Needs make and Python 3.11 or newer; the rest is set up in .venv on first use.

SHELL := /bin/sh
BIN := .venv/bin
RUN_READY := .venv/.ready-run
DEV_READY := .venv/.ready-dev
BENCH_READY := .venv/.ready-bench

# What `make run` asks: `make run QUESTION="What is in docs?"`. SEED repeats the moments that it drew for its kills.
QUESTION ?= What is in src/ninelives?

.DEFAULT_GOAL := help
.PHONY: help run run-shop test check format bench bench-full lock clean

help: ## list the chores
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(RUN_READY) ## run the example agent, kill it twice, count what was repeated
	@$(BIN)/python examples/researcher/demo.py "$(QUESTION)" $(if $(SEED),--seed $(SEED))

run-shop: $(RUN_READY) ## settle orders, kill the agent, approve from another terminal, count what arrived
	@$(BIN)/python examples/shop/settle.py $(if $(SEED),--seed $(SEED))

# One pytest run, so that its closing line counts everything. Tests that share a resource name a group and stay together.
# A worker that is lost ends the run, which says during which test: what a new one would be given may never be handed out.
test: $(DEV_READY) ## run every test
	@$(BIN)/python -m pytest -n 2 --dist loadgroup --max-worker-restart 0 $(PYTEST_ARGS)

check: $(DEV_READY) ## style, types, and which way the imports point
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(DEV_READY) ## put the code in shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Nothing else should be running. More: make bench BENCH_ARGS="--only put --repeats 5"
bench: $(BENCH_READY) ## measure beside LangGraph's SQLite saver; a few minutes
	@$(BIN)/python -m benchmarks $(BENCH_ARGS)

bench-full: $(BENCH_READY) ## the same with chats of 1,000 turns
	@$(BIN)/python -m benchmarks --full $(BENCH_ARGS)

lock: $(DEV_READY) ## renew uv.lock from pyproject.toml
	$(BIN)/python -m pip install --quiet "uv>=0.9"
	$(BIN)/uv lock --no-config --default-index https://pypi.org/simple

clean: ## remove what make and Python made here; stores (*.db) stay
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# -- the environment -------------------------------------------------------------------------------------------

# `python3` where it is new enough, else the newest that is. A name may be on the PATH and still not run: so it is run.
$(BIN)/python:
	@for name in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
	    if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$name; break; fi; \
	done; \
	if [ -z "$$found" ]; then echo "Python 3.11 or newer is needed; name it: make PYTHON=/path/to/python3" >&2; exit 1; fi; \
	echo "setting up .venv with $$("$$found" --version)" >&2; \
	"$$found" -m venv .venv

# Groups of dependencies came with pip 25.1; the pip that comes with a Python may be older.
$(RUN_READY): pyproject.toml | $(BIN)/python
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --editable ".[examples]"
	@touch $@

$(BENCH_READY): pyproject.toml | $(RUN_READY)
	@$(BIN)/python -m pip install --quiet --editable "." --group bench
	@touch $@

$(DEV_READY): pyproject.toml | $(RUN_READY)
	@$(BIN)/python -m pip install --quiet --editable ".[examples]" --group dev
	@touch $@
