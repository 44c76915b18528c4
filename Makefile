# One environment, .venv, made once and used by every target.  `make` alone lists the targets.
#
# Settings, given as `make setup NAME=value` and kept in .venv for later targets:
#   PYTHON       the interpreter to make .venv with                         (python3)
#   TORCH        which torch, as pip spells it                              (torch==2.13.0)
#   TORCH_INDEX  the package index to take torch from; empty: as pip is configured
#   TRITON       which Triton, on Linux, where torch brings none of its own (triton==3.6.0)
# Another value makes .venv anew; `make setup TORCH_INDEX=` goes back to the default.
#
# INSTALLED=1 makes no .venv: the targets use PYTHON, and what is installed beside it, as they are.
#
# Settings of one call: ARGS, more arguments for the command; JOBS, tests run by so many processes side by side (2);
# N, SECONDS and SEED of make fuzz.

-include .venv/settings.mk

CPU_INDEX      := URL, the --index-url that pytorch.org (Get Started) shows for Pip and CPU
DEFAULT_PYTHON := python3
DEFAULT_TORCH  := torch==2.13.0
DEFAULT_TRITON := triton==3.6.0

PYTHON      ?= $(DEFAULT_PYTHON)
TORCH       ?= $(DEFAULT_TORCH)
TORCH_INDEX ?=
TRITON      ?= $(DEFAULT_TRITON)

SHELL  := /bin/sh
BIN    := $(if $(INSTALLED),$(patsubst %/,%,$(dir $(shell command -v $(PYTHON) 2>/dev/null))),.venv/bin)
PY     := $(if $(INSTALLED),$(PYTHON),$(BIN)/python)
PIP    := $(PY) -m pip --disable-pip-version-check
ARGS   ?=
JOBS   ?= 2
PYTHON_OF_TESTS := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(PY)
PYTEST := $(PYTHON_OF_TESTS) -m pytest --dist loadfile --numprocesses
OTHERS := tests --ignore tests/interpreted
HALF_OF_JOBS := $(or $(shell expr \( $(JOBS) + 1 \) / 2 2>/dev/null),$(JOBS))

# What .venv is made for; the folder is part of it, as scripts in .venv name it.
WISH := $(strip $(PYTHON) $(TORCH) $(TRITON) $(TORCH_INDEX) in $(CURDIR))

.DEFAULT_GOAL := help
.PHONY: setup train test test-all fuzz fuzz-files test-gpu check format bench measured docs generate changelog hooks release clean help

ifdef INSTALLED
export PYTHONPATH := .:kernels
endif

setup: .venv/ready  ## make .venv with torch, the package and the developer's tools; quick when it is there
	@echo "$(if $(INSTALLED),what is installed,.venv) is ready: $$($(PY) -c 'import platform; from importlib.metadata import version; print("Python", platform.python_version() + ", torch", version("torch"))')"

train: .venv/ready  ## train a network on handwritten digits (ARGS="--epochs 3" for more options)
	$(BIN)/burn-torch train digits $(ARGS)

test: .venv/ready  ## the tests that need no GPU and little time
	@$(call both,not slow and not gpu)

test-all: .venv/ready  ## every test that needs no GPU, the slow ones too
	@$(call both,not gpu,BURN_TORCH_SLOW=1)

fuzz: .venv/ready  ## random programs through every backend and compiler (N=2000, or SECONDS=60; SEED=7 again)
	OMP_NUM_THREADS=1 $(PY) -m tests.fuzz --processes $(JOBS) $(if $(N),--count $(N)) \
	  $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

fuzz-files: .venv/ready  ## damaged files for every reader (N=20000 of each; SECONDS=, JOBS=, READERS=a+b, SEED=, CASE=)
	OMP_NUM_THREADS=1 $(PY) -m tests.fuzz_files.runner PROCESSES=$(JOBS) $(foreach name,N SECONDS SEED CASE OUT,$(if $($(name)),$(name)=$($(name)))) $(if $(READERS),"READERS=$(READERS)")

test-gpu: .venv/ready  ## the tests that need a CUDA device
	BURN_TORCH_SLOW=1 $(PYTEST) $(JOBS) tests -m gpu $(ARGS)  # JOBS=1 where the memory of the GPU is small

check: .venv/ready  ## format, lint, generated files, import contracts, types; changes nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@if [ -x $(BIN)/actionlint ]; then $(BIN)/actionlint; else echo "actionlint is not installed: make hooks"; fi
	$(PY) docs/generate --check
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/mypy --no-incremental  # its cache loses names of __init__.pyi now and then; without it 13 s

format: .venv/ready  ## put the code into form: the one target that edits it
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

bench: .venv/ready  ## run the benchmarks (BENCH=overhead for one of them)
	@for file in $(or $(BENCH:%=benchmarks/%.py),$(wildcard benchmarks/[a-z]*.py)); do \
	  echo "== $$file"; $(PY) "$$file" $(ARGS) || exit 1; \
	done

docs: .venv/docs-ready generate  ## build the documentation into docs/_build (fetches Sphinx the first time)
	$(BIN)/sphinx-build --quiet --jobs $(JOBS) --fail-on-warning --keep-going docs docs/_build
	@echo "open docs/_build/index.html"

measured: .venv/ready  ## put rows of benchmarks/kernels.py --judged into their file and the docs (ROWS="a.json b.json")
	$(PY) benchmarks/kernels.py --judged --merge $(ROWS)
	$(PY) docs/generate measured

generate: .venv/ready  ## write the generated files again
	$(PY) docs/generate

changelog: .venv/ready  ## show what the next release would write into CHANGELOG.md from changelog.d
	$(BIN)/towncrier build --draft --version "$(or $(VERSION),next)"

hooks: .venv/ready  ## let git run the checks before each commit (fetches pre-commit and actionlint)
	$(PIP) install --constraint .venv/torch.txt --editable '.[hooks]'
	$(BIN)/pre-commit install

release: .venv/release-ready  ## prepare a release up to its tag (VERSION=0.1.0; ARGS=--dry-run changes nothing)
	$(PY) .ci/release.py $(VERSION) $(ARGS)

clean:  ## remove what builds and tools leave behind; keeps .venv and artifacts
	rm -rf build dist *.egg-info docs/_build docs/reference/*.rst .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

# -- how .venv is made --------------------------------------------------------
# .venv/ready is written last and taken away first, so an interrupted attempt leaves none, and the next one starts
# from an empty .venv (pip keeps what it has downloaded).  A newer setup.py or Makefile only brings .venv up to date.
# .venv/torch.txt holds the torch that is there: what is installed after it may not exchange it.

ifdef INSTALLED
.PHONY: .venv/ready .venv/docs-ready .venv/release-ready
.venv/ready .venv/docs-ready .venv/release-ready:
	@$(check_python)
else
ifneq ($(WISH),$(MADE_WITH))
.PHONY: .venv/ready
endif

.venv/ready: setup.py Makefile
	@$(check_python)
	@if ! [ -f $@ ] || [ '$(WISH)' != '$(MADE_WITH)' ] || ! $(PIP) --version >/dev/null 2>&1; then $(make_venv); fi
	@rm -f $@ .venv/docs-ready .venv/release-ready
	$(PIP) install $(if $(TORCH_INDEX),--index-url '$(TORCH_INDEX)') '$(TORCH)'
	@$(PY) -c 'from importlib.metadata import version; print("torch==" + version("torch"))' > .venv/torch.txt
	@$(PIP) show --quiet triton 2>/dev/null || $(PIP) install '$(TRITON); platform_system == "Linux"'
	$(PIP) install --constraint .venv/torch.txt --editable '.[dev]'
	@$(PY) -m compileall -q -j 2 burn_torch kernels tests/fuzz  # else each first process of a new clone does
	@$(PYTHON_OF_TESTS) -m pytest --collect-only -qq tests >/dev/null || true  # and else each worker rewrites all asserts
	@{ echo 'MADE_WITH := $(WISH)'; $(foreach name,PYTHON TORCH TRITON TORCH_INDEX,$(call keep,$(name))) } > .venv/settings.mk
	@touch $@
	@$(report_cuda)

.venv/docs-ready: .venv/ready
	$(PIP) install --constraint .venv/torch.txt --editable '.[docs]'
	@touch $@

.venv/release-ready: .venv/ready
	$(PIP) install --constraint .venv/torch.txt --editable '.[release]'
	@touch $@
endif

# A value that is not the default is asked for once and holds for later targets.
keep = $(if $(filter-out $(DEFAULT_$(1)),$($(1))),echo '$(1) ?= $($(1))';)

define check_python
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
  echo "setup: $(PYTHON) cannot run burn_torch"; \
  echo "  given:    $$($(PYTHON) --version 2>&1 || true)"; \
  echo "  expected: Python 3.11 or newer"; \
  echo "  mend:     make $(or $(firstword $(MAKECMDGOALS)),setup) PYTHON=python3.12, or the path of another one"; \
  exit 1; \
} >&2
endef

define make_venv
$(PYTHON) -m venv --clear .venv && $(PIP) --version >/dev/null || { \
  echo "setup: $(PYTHON) could not make .venv"; \
  echo "  given:    $$($(PYTHON) --version), and what it says above"; \
  echo "  expected: a Python with the modules venv and ensurepip"; \
  echo "  mend:     on Debian and Ubuntu: apt install python3-venv; or: make setup PYTHON=another-python"; \
  exit 1; \
} >&2
endef

# pip cannot tell the size before it downloads, so this looks at what is there afterwards.
define report_cuda
site=$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("platlib"))'); \
if ls "$$site"/torch/lib/libtorch_cuda.so >/dev/null 2>&1 && ! [ -e /dev/nvidiactl ] && ! [ -e /dev/dxg ]; then \
  size=$$(du -chs "$$site"/nvidia "$$site"/torch/lib/*cuda* 2>/dev/null | tail -n 1 | cut -f 1); \
  echo; \
  echo "Note: this machine has no NVIDIA GPU, and $$size of $(TORCH) as installed serve only one.  Everything works"; \
  echo "all the same.  To have the space back, take the build of PyTorch's CPU index:"; \
  echo "    make setup TORCH_INDEX=$(CPU_INDEX)"; \
  echo; \
fi
endef

# Kernels under Triton's interpreter need processes of their own: those cannot compile ahead of time.  They run beside
# the others, which now and then wait for other processes and the clock, and their report comes last.  Exit status 5 of
# pytest says that the marks left no test.
define both
report=$$(mktemp); \
TRITON_INTERPRET=1 $(PYTEST) $(HALF_OF_JOBS) tests/interpreted -m "$(1)" $(ARGS) >"$$report" 2>&1 & beside=$$!; \
trap 'kill $$beside 2>/dev/null; rm -f "$$report"' EXIT; trap 'exit 130' INT TERM; \
$(2) $(PYTEST) $(JOBS) $(OTHERS) -m "$(1)" $(ARGS); others=$$?; \
wait $$beside; interpreted=$$?; \
echo; echo "Under Triton's interpreter:"; cat "$$report"; \
[ $$interpreted -eq 0 ] || [ $$interpreted -eq 5 ] || exit $$interpreted; \
exit $$others
endef
