# Two commands: `make demo` and `make test`. Both set up everything they need in .venv and build/.

PYTHON ?= python3
MODEL ?=
export PIP_DISABLE_PIP_VERSION_CHECK = 1

venv := .venv
python := $(venv)/bin/python
sdist := build/sdist/llama_cpp_python-0.3.36.tar.gz
installed := $(venv)/.installed
oracle := build/oracle/.built
sources := $(shell find csrc cmake pyproject.toml CMakeLists.txt -type f)
offline = { echo "pyquant: pip could not install what is needed: is there a network?" >&2; exit 1; }

.PHONY: demo test bench lint oracle clean

demo: $(installed)
	$(python) analysis/demo.py $(if $(MODEL),--model "$(MODEL)")

test: $(installed) $(oracle)
	$(python) -m pytest $(PYTEST)

bench: $(installed) $(oracle)
	$(python) -m benchmarks $(BENCH)

lint: $(installed)
	$(venv)/bin/ruff check . && $(venv)/bin/ruff format --check .

# Stock llama.cpp, unpatched, from the same source: what the tests and benchmarks compare with.
oracle: $(oracle)

clean:
	rm -rf $(venv) build

$(python):
	@command -v $(PYTHON) >/dev/null || { echo "pyquant: $(PYTHON) is not installed; Python 3.10 or newer is needed" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "pyquant: Python 3.10 or newer is needed; make PYTHON=... names one" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' || { echo "pyquant: Python's venv module is needed (Debian: apt install python3-venv)" >&2; exit 1; }
	@command -v $${CXX:-c++} >/dev/null || { echo "pyquant: a C++ compiler is needed (Debian: apt install g++)" >&2; exit 1; }
	$(PYTHON) -m venv $(venv)

$(sdist): | $(python)
	@echo "pyquant: fetching llama.cpp's source"
	@if [ -n "$$PYQUANT_LLAMA_SDIST" ]; then mkdir -p build/sdist && cp "$$PYQUANT_LLAMA_SDIST" $@; fi
	@$(python) cmake/vendor.py --download build/sdist

# llama_cpp without a library of its own: it will use ours. --no-cache-dir: pip caches a wheel by its
# link, whatever the settings, and would hand this one to other environments.
$(venv)/.bindings: $(sdist)
	@echo "pyquant: installing llama_cpp's bindings"
	@$(python) -m pip install --quiet --no-cache-dir -C cmake.define.LLAMA_BUILD=OFF -C cmake.define.LLAVA_BUILD=OFF $(sdist) || $(offline)
	@touch $@

$(installed): $(venv)/.bindings $(sources)
	@echo "pyquant: compiling llama.cpp and the kernels (two cores: about 2 minutes, once)"
	@PYQUANT_LLAMA_SDIST=$(abspath $(sdist)) $(python) -m pip install --quiet -e '.[test]' || $(offline)
	@touch $@

$(oracle): cmake/oracle.py $(sdist) | $(installed)
	@echo "pyquant: compiling stock llama.cpp to compare with (two cores: about 5 minutes, once)"
	@$(python) cmake/oracle.py $(sdist) build/oracle
	@touch $@
