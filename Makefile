# Two commands: `make demo` and `make test`. Both set up everything they need in .venv and build/.
# CONTRIBUTING.md has the others.

PYTHON ?= python3
MODEL ?=
SECONDS ?= 60
PYTHONS ?= $(PYTHON)
ARCHITECTURE ?= $(shell uname -m)
TIER ?= test
# A backend of llama.cpp for GPUs: vulkan, cuda, metal or hip (docs/gpu.md); it stays until another one is named.
GPU ?= $(shell cat .venv/.gpu 2>/dev/null)
export PIP_DISABLE_PIP_VERSION_CHECK = 1

$(if $(filter-out vulkan cuda metal hip,$(GPU))$(word 2,$(GPU)),$(error pyquant: GPU=$(GPU): give vulkan, cuda, metal or hip; `make GPU=` builds for the CPU))

venv := .venv
python := $(venv)/bin/python
pip := $(python) -m pip install
quietly = $(python) cmake/quietly.py build/log/$(1).txt
sdist := build/sdist/llama_cpp_python-0.3.36.tar.gz
installed := $(venv)/.installed
backend := $(if $(GPU),-C cmake.define.GGML_$(shell echo $(GPU) | tr a-z A-Z)=ON -C 'build-dir=build/{wheel_tag}-$(GPU)')
wheel_tools := $(PYTHONS:%=build/wheel/%/.tools)
oracle := build/oracle/.built
cpp := $(shell find csrc tests cmake -name '*.cpp' -o -name '*.h')
sources := $(shell find csrc cmake/*.* CMakeLists.txt pyproject.toml -type f)
comma := ,
define newline


endef
say = @echo "pyquant: $(1)"
stop = { echo "pyquant: $(1)" >&2; exit 1; }

.PHONY: demo smollm2 qwen test test-all test-gpu trial bench fuzz lint stub documents docs sdist wheel wheel-test arm oracle clean always
.DELETE_ON_ERROR:

demo: $(installed)
	@$(python) analysis/demo.py $(if $(MODEL),--model "$(MODEL)")

# Models that people run, into models/: what holds on the model bundled must hold on them.
smollm2 qwen: $(installed)
	@$(python) -m analysis.public_models $@ models

# A process for each core. Threads of llama.cpp that wait would take the core of another one's:
# OMP_WAIT_POLICY lets them sleep. TIER=ci takes along what compares with stock llama.cpp, TIER=all everything.
test: $(installed) $(if $(filter test,$(TIER)),,$(oracle))
	OMP_WAIT_POLICY=passive $(python) -m pytest --tier $(TIER) -n auto --maxprocesses 8 $(PYTEST)

# A wheel is tested where its tools are to be had; the test says where it is not.
test-all:
	$(call say,all tests take an hour on two cores, beside the wheel that is compiled before them)
	@if $(MAKE) $(wheel_tools); then $(MAKE) wheel; else echo "pyquant: the tools of make wheel are not to be had: no wheel is tested" >&2; fi
	@$(MAKE) test TIER=all

# What runs on a GPU; with Mesa's software driver for Vulkan it needs none.
test-gpu: $(installed)
	$(python) -m pytest --tier all -m gpu $(PYTEST)

# Attacks at random (docs/trial.md): make trial CASES=1000000 SEED=2
trial: $(installed)
	$(python) -m tests.trial --cases $(or $(CASES),10000) --seed $(or $(SEED),1)

bench: $(installed) $(oracle)
	$(python) -m benchmarks $(BENCH)

# Readers, guided by coverage, for SECONDS each; needs clang.
fuzz: $(installed)
	@$(python) -m tests.support.fuzz_targets $(SECONDS)

# What machines can check without running tests, the quickest first.
lint: $(installed)
	$(venv)/bin/ruff check .
	$(venv)/bin/ruff format --check .
	$(venv)/bin/clang-format --dry-run --Werror $(cpp)
	PYTHONPATH=. $(venv)/bin/lint-imports
	$(venv)/bin/mypy
	$(python) cmake/write_stub.py --check
	$(python) -m tests.support.links
	$(python) -m tests.support.console_blocks --check

# The types of the extension, pyquant/_core.pyi: after a change of csrc/bindings.
stub: $(installed)
	$(python) cmake/write_stub.py

# What the commands in README.md and docs/ print, put into them.
documents: $(installed)
	$(python) -m tests.support.families_page
	$(python) -m tests.support.console_blocks

# The source distribution, build/dist/pyquant-VERSION.tar.gz; tests/test_sdist.py installs one.
sdist: $(installed)
	$(python) -m build --sdist --no-isolation --outdir build/dist .

# Wheels for any Linux with glibc 2.28, in build/dist, for each of PYTHONS: make wheel PYTHONS="python3.11 python3.12".
wheel: $(wheel_tools)
	$(foreach name,$(PYTHONS),build/wheel/$(name)/bin/python cmake/wheel.py build/dist --architecture $(ARCHITECTURE)$(newline))

wheel-test: $(installed) wheel
	$(python) -m pytest --tier all -s tests/test_wheel.py tests/test_wheel_arm.py

# A Python for 64-bit ARM, to test the wheel for it by qemu-user.
arm: $(installed)
	@$(call quietly,arm) $(python) -m tests.support.arm_python build/arm

build/wheel/%/.tools: pyproject.toml cmake/requires.py
	@$* -m venv $(@D)
	@$(@D)/bin/python cmake/requires.py wheel >$(@D)/requires.txt
	@$(@D)/bin/python -m pip install --quiet cmake ninja --requirement $(@D)/requires.txt
	@touch $@

# The reference of pyquant's Python API, build/docs/index.html.
docs: $(installed)
	$(python) cmake/api_reference.py build/docs

# Stock llama.cpp, unpatched, from the same source: what the tests and benchmarks compare with.
oracle: $(oracle)

clean:
	rm -rf $(venv) build

$(python):
	@command -v $(PYTHON) >/dev/null || $(call stop,$(PYTHON) is not there; Python 3.10 or newer is needed and make PYTHON=... names one)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || $(call stop,$$($(PYTHON) --version 2>&1) is too old; Python 3.10 or newer is needed and make PYTHON=... names one)
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || $(call stop,$(PYTHON) lacks its venv module; Debian and Ubuntu have it in python3-venv)
	@$(PYTHON) -c 'import sys, sysconfig, os; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' || $(call stop,$(PYTHON) lacks its C headers; Debian and Ubuntu have them in python3-dev)
	@command -v "$${CXX:-c++}" >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null || $(call stop,a C++ compiler is needed; Debian and Ubuntu have one in g++)
	@$(PYTHON) -m venv $(venv)

# What the builds need stays in .venv: with pip's build isolation it would have another path at every
# installation, and all of our sources would be compiled again.
$(venv)/.tools: pyproject.toml cmake/requires.py | $(python)
	$(call say,fetching the build tools)
	@$(python) cmake/requires.py >$(venv)/requires.txt
	@$(call quietly,tools) $(pip) cmake ninja --requirement $(venv)/requires.txt
	@touch $@

$(sdist): | $(venv)/.tools
	$(call say,fetching llama.cpp)
	@$(call quietly,sdist) $(python) cmake/vendor.py llama --only-sdist

# llama_cpp without a library of its own: it will use ours. --no-cache-dir: pip caches a wheel by its
# link, whatever the settings, and would hand this one to other environments.
$(venv)/.bindings: $(sdist)
	$(call say,installing llama_cpp)
	@$(call quietly,bindings) $(pip) --no-build-isolation --no-cache-dir -C cmake.define.LLAMA_BUILD=OFF -C cmake.define.LLAVA_BUILD=OFF $(sdist)
	@touch $@

$(installed): $(venv)/.bindings $(venv)/.gpu $(sources)
	$(call say,compiling pyquant and llama.cpp (the first time: about 2 minutes on two cores$(if $(GPU),$(comma) more for $(GPU))))
	@$(call quietly,install) $(pip) --verbose --no-build-isolation $(backend) --editable '.[test]'
	@touch $@

$(venv)/.gpu: always | $(python)
	@echo $(GPU) | cmp --quiet - $@ || echo $(GPU) >$@

$(oracle): $(wildcard cmake/oracle/*) cmake/vendor.cmake $(sdist) | $(venv)/.tools
	$(call say,compiling stock llama.cpp to compare with (once: about 3 minutes on two cores))
	@$(call quietly,oracle) $(venv)/bin/cmake --fresh -G Ninja -S cmake/oracle -B build/oracle -DCMAKE_MAKE_PROGRAM="$(CURDIR)/$(venv)/bin/ninja" -DPython_EXECUTABLE="$(CURDIR)/$(python)"
	@$(call quietly,oracle) $(venv)/bin/cmake --build build/oracle
	@touch $@
