# `make demo` and `make test` need python3, git and make; everything else is set up in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)

CONSTRAINED := -c constraints.txt
# Several test processes share the cores: OpenMP's threads would wait for each other in busy loops.
# The commands that tests start find their modules compiled, whatever the environment says.
ALONE := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=

.PHONY: demo test test-all test-machines test-newest docs lock browser lint types audit format \
  bench bench-start bench-scale bench-families bench-load dist try-dist clean

demo: $(VENV)/.installed-demo
	PYTHONDONTWRITEBYTECODE= $(BIN)/deltadex demo demo-output --db demo-output/deltadex.duckdb

# Hypothesis draws the same examples every time here, and new ones in test-all.
test: $(VENV)/.installed-test browser
	$(ALONE) $(BIN)/python -m pytest tests -m "not slow" -n 2 --dist loadfile --hypothesis-profile=ci

test-all: $(VENV)/.installed-test browser
	$(BIN)/python -m pytest tests
	$(MAKE) try-dist
	$(MAKE) test-machines
	$(MAKE) test-newest

# As on other processors; then `make test` in clones of the last commit, in unusual surroundings and
# with every Python from 3.11 on that is there. tests/machines/run.py has the lists.
test-machines: $(VENV)/.installed-test browser
	$(ALONE) $(BIN)/python tests/machines/run.py
	$(BIN)/python tests/machines/run.py --surroundings

# With the newest version of everything but torch, whose newest build may be one for a GPU.
test-newest:
	rm -rf .venv-newest
	$(MAKE) test VENV=.venv-newest CONSTRAINED=

# The site, in .cache/site/site; needs no network. `python -m http.server -d .cache/site/site` shows it.
docs: $(VENV)/.installed-docs
	$(BIN)/python .ci/site.py .cache/site
	$(BIN)/zensical build --strict -f .cache/site/mkdocs.yml

# What is published: sdist, wheel, and what a plain installation holds (CycloneDX).
dist: $(VENV)/.installed-test
	rm -rf dist .venv-plain
	$(BIN)/python -m build -q --no-isolation
	$(BIN)/twine check --strict dist/*
	$(MAKE) .venv-plain/.installed-plain VENV=.venv-plain
	$(BIN)/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml \
	  -o dist/deltadex.cdx.json .venv-plain/bin/python

# What was built, used: the wheel, its demo and its service in an environment without the checkout,
# and the steps of the container's image.
try-dist: dist
	$(MAKE) .venv-plain/.installed-try VENV=.venv-plain
	.venv-plain/bin/python -m pip install -q --no-deps --force-reinstall dist/*.whl
	rm -rf .cache/try-dist && mkdir -p .cache/try-dist
	cd .cache/try-dist && ../../.venv-plain/bin/python -I -m deltadex demo out --db demo.duckdb --quiet
	cd .cache/try-dist && ../../.venv-plain/bin/deltadex map --db demo.duckdb -o map.png
	cd .cache/try-dist && ../../.venv-plain/bin/python -I ../../.ci/every_route.py demo.duckdb
	$(ALONE) $(BIN)/python -m pytest tests/test_deploy.py -m slow

# Resolves constraints.txt anew, for every platform and Python. What torch needs is said here, since
# its builds differ in it, and those for a GPU are gigabytes.
lock:
	$(PYTHON) -m venv .cache/lock
	.cache/lock/bin/python -m pip install -q uv
	printf '[[dependency-metadata]]\nname = "torch"\nrequires-dist = ["filelock", "fsspec", %s]\n' \
	  '"jinja2", "networkx", "setuptools", "sympy", "typing-extensions"' > .cache/lock/uv.toml
	echo '# Everything but torch, resolved. `make lock` makes it anew; `make test` installs by it.' \
	  > .cache/lock/constraints.txt
	.cache/lock/bin/uv --config-file .cache/lock/uv.toml pip compile -q --universal --upgrade \
	  --python-version 3.11 --all-extras --generate-hashes --no-header --no-annotate \
	  --no-emit-package torch -c constraints-torch.txt pyproject.toml >> .cache/lock/constraints.txt
	mv .cache/lock/constraints.txt constraints.txt

# The page's tests drive a real Chromium; without one, and without the right to install it, they
# are skipped.
browser:
	@command -v chromium >/dev/null \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	       && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } \
	  || echo "no Chromium here: the page's tests are skipped"

lint: $(VENV)/.installed-lint
	$(PYTHON) .ci/totals.py
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

# The second takes 32 GB of disk; LAYERS=8 makes smaller models.
bench: $(VENV)/.installed-test
	$(BIN)/python benchmarks/fingerprinting.py
	$(BIN)/python benchmarks/large_models.py $(if $(LAYERS),--layers $(LAYERS))

bench-start: $(VENV)/.installed-test
	$(BIN)/python benchmarks/start.py

bench-scale: $(VENV)/.installed-test
	$(BIN)/python benchmarks/scale.py

bench-load: $(VENV)/.installed-test
	$(BIN)/python benchmarks/load.py

# TEXTS: a folder of SET.csv files; ADAPTERS: strangers' adapters with labels.csv, if any.
bench-families: $(VENV)/.installed-families
	$(BIN)/python -m benchmarks.families build .cache/families --texts $(TEXTS)
	$(BIN)/python -m benchmarks.families score .cache/families --db .cache/families.duckdb \
	  $(if $(ADAPTERS),--adapters $(ADAPTERS))

clean:
	rm -rf $(VENV) .venv-plain build dist .cache demo-output *.egg-info

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# pip first, as older ones do not take hashes from constraints; then torch: what needs it finds it
# there; deltadex last, without dependencies.
$(VENV)/.installed-%: pyproject.toml constraints.txt constraints-torch.txt | $(VENV)/bin/python
	$(BIN)/python .ci/dependencies.py '$(EXTRAS_$*)' > $(VENV)/wanted-$*.txt
ifeq ($(UV),)
	$(BIN)/python -m pip install -q --upgrade \
	  $(if $(CONSTRAINED),"$$(grep -o '^pip==[^ ]*' constraints.txt)",pip)
	$(BIN)/python -m pip install -q --no-compile -c constraints-torch.txt torch
	$(BIN)/python -m pip install -q --no-compile $(CONSTRAINED) -r $(VENV)/wanted-$*.txt
	$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
else
	$(UV) pip install -q --python $(BIN)/python --torch-backend=cpu -c constraints-torch.txt torch \
	  || $(BIN)/python -m pip install -q --no-compile -c constraints-torch.txt torch
	$(UV) pip install -q --python $(BIN)/python $(CONSTRAINED) -r $(VENV)/wanted-$*.txt
	$(UV) pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
endif
	touch $@

EXTRAS_demo := demo
EXTRAS_try := demo,serve
EXTRAS_test := demo,docs,serve,test,umap
EXTRAS_families := families
EXTRAS_docs := docs,serve
EXTRAS_plain :=
EXTRAS_lint := demo,serve,test,umap,lint
