# One word per job. `make demo` and `make test` set everything up first; every job can be repeated and only does what
# has changed.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
JOBS ?= $(shell nproc)
BUILD := build/release
PY := $(abspath $(VENV))/bin/python
STEP := tools/step
ONLY ?= *

.PHONY: help setup build device demo test test-all test-cpp test-python bench format lint docs wheel asan tsan clean

help:
	@echo "make demo      set up, build, and train Qwen3 on the neuron device and on the CPU"
	@echo "make test      set up, build, and run the fast test suite (under ten minutes)"
	@echo "make test-all  the long suite as well"
	@echo "make bench     the benchmarks; ONLY='eager.*' selects by name"
	@echo "make build | setup | wheel | format | lint | docs | asan | tsan | clean"

# ---- set-up
setup: $(VENV)/.ready

$(VENV)/.ready: tools/setup/system.sh tools/setup/python.sh tools/setup/requirements.txt
	@$(STEP) "system packages" tools/setup/system.sh $(PYTHON)
	@$(STEP) "Python packages in $(VENV)" tools/setup/python.sh $(VENV) $(PYTHON)
	@touch $@

# ---- build
$(BUILD)/build.ninja: | $(VENV)/.ready
	@$(STEP) "configuring" cmake --preset release -DPython_EXECUTABLE=$(PY) --log-level=WARNING

build: $(BUILD)/build.ninja
	@$(STEP) "building" cmake --build $(BUILD) -j $(JOBS)
	@$(PY) tools/setup/link_build.py $(abspath $(BUILD)/python)

# Without the C++ tests, which take about as long to build as all the rest.
device: $(BUILD)/build.ninja
	@$(STEP) "building the device" cmake --build $(BUILD) -j $(JOBS) --target opentrn opentrn_core_module opentrn_bridge
	@$(PY) tools/setup/link_build.py $(abspath $(BUILD)/python)

# ---- use
demo: STARTED := $(shell date +%s)
demo: device
	@$(STEP) "demo" $(VENV)/bin/opentrn run --compare cpu examples/train_qwen3.py
	@if [ $$(stat -c %Y $(VENV)/.ready) -ge $(STARTED) ]; then \
	  echo "set-up, build and demo: $$(( $$(date +%s) - $(STARTED) )) s" | tee build/setup_seconds; fi

# ---- tests
test: build
	@$(STEP) "C++ tests" ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)
	@$(STEP) "Python tests" $(PY) -m pytest -m "not slow" -n $(JOBS) tests/python

test-all: build
	@$(STEP) "C++ tests" ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)
	@$(STEP) "Python tests" $(PY) -m pytest -n $(JOBS) tests/python

test-cpp: build
	@$(STEP) "C++ tests" ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

test-python: build
	@$(STEP) "Python tests" $(PY) -m pytest -m "not slow" -n $(JOBS) tests/python

asan tsan: $(VENV)/.ready
	@$(STEP) "$@: configuring" cmake --preset $@ --log-level=WARNING
	@$(STEP) "$@: building" cmake --build --preset $@ -j $(JOBS)
	@$(STEP) "$@: C++ tests" ctest --preset $@

bench: device
	@$(PY) -m benchmarks --only '$(ONLY)' --out build/bench.json

# ---- upkeep
CXX_FILES = $(shell git ls-files 'src/*.h' 'src/*.cc' 'src/*.inc' 'tests/cpp/*.cc' 'tests/cpp/*.h')

format: $(VENV)/.ready
	@clang-format -i $(CXX_FILES)
	@$(PY) -m ruff format -q python tests benchmarks examples tools
	@$(PY) -m ruff check -q --fix python tests benchmarks examples tools

lint: $(BUILD)/build.ninja
	@$(STEP) "layers" $(PY) tools/check_layers.py
	@$(STEP) "ruff" $(PY) -m ruff check python tests benchmarks examples tools
	@$(STEP) "clang-tidy" tools/clang_tidy.sh $(BUILD)

docs: device
	@$(STEP) "accuracy" $(PY) tools/accuracy.py
	@$(STEP) "docs" $(PY) tools/check_docs.py

wheel: $(VENV)/.ready
	@$(STEP) "wheel" $(PY) -m pip wheel . --no-deps --no-build-isolation --disable-pip-version-check -w dist

clean:
	rm -rf build dist
