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

# What the compiled kernels are built from.
KERNEL_SOURCES := build_kernels.py $(wildcard csrc/*)
# A build of the package whose kernels watch every memory access.
SANITIZED := build/sanitized

.PHONY: help install demo test sanitize lint typecheck format wheel clean

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

sanitize: export OMP_NUM_THREADS := 1
sanitize: $(SANITIZED)/built ## Run the tests of the compiled kernels under the address and undefined-behaviour sanitizers.
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=$(CURDIR)/$(SANITIZED)/lib HF_METALSTM_SANITIZED=1 \
	  $(BIN)/pytest -p no:cacheprovider tests/modeling/test_sanitized_kernels.py \
	  tests/modeling/test_recurrent.py tests/modeling/test_recurrent_gru_hyper.py tests/modeling/test_compiled_kernels.py \
	  -k "not compiled_module and not can_be_compiled and not exported and not keep_torchs_rules and not [torch"

$(SANITIZED)/built: $(STAMP) $(wildcard hf_metalstm/*/*.py)
	HF_METALSTM_SANITIZE=1 HF_METALSTM_KERNELS=require $(BIN)/python setup.py -q build \
	  --build-base $(SANITIZED) --build-lib $(SANITIZED)/lib
	@touch $@

wheel: $(STAMP) ## Build the wheel and the source archive into dist/.
	$(BIN)/python -m build

lint: $(STAMP) ## Check the style.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror csrc/*

typecheck: $(STAMP) ## Check the types.
	$(BIN)/mypy

format: $(STAMP) ## Put the style right where a tool can.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i csrc/*

clean: ## Remove .venv, caches, builds and outputs.
	rm -rf $(VENV) build dist outputs *.egg-info hf_metalstm/_kernels*.so .pytest_cache .hypothesis .mypy_cache .ruff_cache
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
$(STAMP): setup.py constraints.txt hf_metalstm/_version.py $(KERNEL_SOURCES) | $(BIN)/python
	$(BIN)/python -m pip install "$$(grep -E '^torch==' constraints.txt)"
	$(BIN)/python -m pip install -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@
