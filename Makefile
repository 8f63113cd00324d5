# Everything a newcomer needs: `make demo` and `make test` set the project up on a machine that has Python and make.
# Settings of pip in the environment are honoured, for instance an extra index that serves CPU builds of torch.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.hf-metalstm-installed
EXTRAS := dev,plots,vectors
# Arguments of the demo, for instance: make demo ARGS="--epochs 1 --output_dir outputs/quick"
ARGS ?=
# Arguments of pytest, for instance: make test PYTEST_ARGS="tests/modeling -x"
PYTEST_ARGS ?=
# Processes that share the tests.
WORKERS ?= 2
# The interpreter to build on; empty means the first of CANDIDATES that works.
PYTHON ?=
CANDIDATES := python3.11 python3.12 python3.13 python3.10 python3 python

# A name on the PATH may be a wrapper that fails, too old, or lack venv: only running it tells.
USABLE := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))

.PHONY: help install demo test lint typecheck format clean

help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP) ## Make .venv and install the package with its tools, once.

demo: $(STAMP) ## Train, compare, save and reload the models on the data that comes with the project.
	$(BIN)/hf-metalstm demo $(ARGS)

test: export OMP_NUM_THREADS := 1
test: export HF_HUB_OFFLINE := 1
test: export TOKENIZERS_PARALLELISM := false
test: $(STAMP) ## Run all tests.
	$(BIN)/python -m pytest -n $(WORKERS) $(PYTEST_ARGS)

lint: $(STAMP) ## Check the style.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

typecheck: $(STAMP) ## Check the types.
	$(BIN)/mypy

format: $(STAMP) ## Put the style right where a tool can.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove .venv, caches, builds and outputs.
	rm -rf $(VENV) build dist outputs *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@python="$(PYTHON)"; \
	if [ -z "$$python" ]; then \
	  for candidate in $(CANDIDATES); do \
	    if "$$candidate" -c '$(USABLE)' >/dev/null 2>&1; then python="$$candidate"; break; fi; \
	  done; \
	elif ! "$$python" -c '$(USABLE)'; then \
	  echo "PYTHON=$$python does not run, is older than 3.10 or lacks the venv and ensurepip modules" >&2; exit 1; \
	fi; \
	if [ -z "$$python" ]; then \
	  echo "No Python of version 3.10 or newer with venv found (tried: $(CANDIDATES))." >&2; \
	  echo "Install one, or name yours: make $(or $(MAKECMDGOALS),install) PYTHON=/path/to/python3" >&2; exit 1; \
	fi; \
	echo "Making $(VENV) with $$python ($$("$$python" -V))"; \
	"$$python" -m venv $(VENV)

# torch first: by far the largest download, kept even when a later step fails.
$(STAMP): setup.py constraints.txt hf_metalstm/_version.py | $(BIN)/python
	$(BIN)/python -m pip install "$$(grep -E '^torch==' constraints.txt)"
	$(BIN)/python -m pip install -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@
