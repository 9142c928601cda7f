# `make demo` and `make test` need Python 3.11 or later, make and git; they set up the rest in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Tests run in so many processes; a file's tests stay together.
WORKERS ?= 2

# bf16 kernels kill the process on machines that advertise AMX wrongly.
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_BF16

.PHONY: help demo test test-all test-faults lint docs adapters package bench clean
help:
	@echo "make demo      set up, then let sheet music and sound of folk tunes find each other"
	@echo "make test      set up, then lint, type-check and test"
	@echo "make test-all  the same with the slow tests"
	@echo "make test-faults  break files, processes and connections, for some minutes"
	@echo "make docs      the documentation as a site, in build/site"
	@echo "make adapters  install LangChain, Jupyter and other packages; test what is for them, run the notebooks"
	@echo "make package   build wheel and source distribution, and run the demo from the wheel"
	@echo "make bench     measure speed and accuracy against peers (quiet machine, some minutes)"
	@echo "make clean     remove the virtual environment and caches"

# Before it was called cca-layer, the distribution had the name of the command.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ccal needs Python 3.11 or later")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip uninstall --quiet --quiet --yes ccal
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/ccal demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m 'not slow and not faults'

# Kills, failing disks, damaged files; other seeds with FAULT_SEED=n.
test-faults: $(STAMP)
	$(BIN)/python -m pytest tests -n $(WORKERS) --dist loadfile -m faults

# The documentation as a site, and the commands of the tutorials.
docs: $(STAMP)
	$(BIN)/mkdocs build --quiet --strict
	$(BIN)/python -m pytest --quiet tests/cli/test_tutorials.py

# Packages that adapters are for are installed after the other tests, which must do without them.
adapters: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --requirement tests/adapters/requirements.txt
	$(BIN)/python -m pytest tests/adapters src/ccal/adapters tests/test_notebooks.py

# The wheel is built from the source distribution, so that both are tried.
package: $(STAMP)
	rm -rf dist build/clean
	$(BIN)/python -m build --outdir dist .
	$(PYTHON) -m venv build/clean
	build/clean/bin/python -m pip install --quiet --constraint constraints.txt "$$(echo dist/*.whl)[music,plots]"
	build/clean/bin/ccal demo --out build/demo

test-all: lint
	HYPOTHESIS_PROFILE=fresh $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

bench: $(STAMP)
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
