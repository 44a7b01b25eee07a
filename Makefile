# `make demo` and `make test` need python3, git and make; everything else is set up in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)

.PHONY: demo test test-all browser lint types audit format bench bench-scale bench-families bench-load bench-soak clean

demo: $(VENV)/.installed-demo
	$(BIN)/deltadex demo demo-output --db demo-output/deltadex.duckdb

test: $(VENV)/.installed-test browser
	$(BIN)/python -m pytest tests -m "not slow" -n 2 --dist loadfile

test-all: $(VENV)/.installed-test browser
	$(BIN)/python -m pytest tests

# The page's tests drive a real Chromium; without one, and without the right to install it, they
# are skipped.
browser:
	@command -v chromium >/dev/null \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	       && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } \
	  || echo "no Chromium here: the page's tests are skipped"

lint: $(VENV)/.installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) types audit

# Known holes of what is installed; a package that the index does not describe is named.
audit: $(VENV)/.installed-lint
	$(BIN)/pip-audit --skip-editable --progress-spinner off

# Checked as installed: mypy names modules after the checkout folder, and cannot see through
# an editable install.
types: $(VENV)/.installed-lint
	rm -rf build .cache/types
	$(BIN)/python -m pip install -q --no-deps --no-build-isolation --target .cache/types .
	rm -rf build
	MYPYPATH=.cache/types $(BIN)/mypy --config-file pyproject.toml -p deltadex

format: $(VENV)/.installed-lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-test
	$(BIN)/python benchmarks/fingerprinting.py

bench-scale: $(VENV)/.installed-test
	$(BIN)/python benchmarks/scale.py

bench-load: $(VENV)/.installed-test
	$(BIN)/python benchmarks/load.py --check

bench-soak: $(VENV)/.installed-test
	$(BIN)/python benchmarks/soak.py

# TEXTS: a folder of SET.csv files; ADAPTERS: strangers' adapters with labels.csv, if any.
bench-families: $(VENV)/.installed-families
	$(BIN)/python -m benchmarks.families build .cache/families --texts $(TEXTS)
	$(BIN)/python -m benchmarks.families score .cache/families --db .cache/families.duckdb \
	  $(if $(ADAPTERS),--adapters $(ADAPTERS))

clean:
	rm -rf $(VENV) build dist .cache demo-output *.egg-info

# torch first, by the constraints file: the CPU build where its wheel is within reach.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
ifeq ($(UV),)
	$(BIN)/python -m pip install -q --upgrade pip
endif

$(VENV)/.installed-%: pyproject.toml constraints.txt | $(VENV)/bin/python
ifeq ($(UV),)
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[$(EXTRAS_$*)]"
else
	$(UV) pip install -q --python $(BIN)/python --torch-backend=cpu -c constraints.txt torch \
	  || $(BIN)/python -m pip install -q -c constraints.txt torch
	$(UV) pip install -q --python $(BIN)/python -c constraints.txt -e ".[$(EXTRAS_$*)]"
endif
	touch $@

EXTRAS_demo := demo
EXTRAS_test := demo,serve,test,umap
EXTRAS_families := families
EXTRAS_lint := demo,serve,test,umap,lint
