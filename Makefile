.PHONY: setup demo test check proof aa chaos bench bench-experiments lock clean
PYTHON ?= python3
BIN := .venv/bin

setup: .venv/.stamp

.venv/.stamp: pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Thumbwheel needs Python 3.11 or newer; set PYTHON=…")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Setting up .venv (a few minutes the first time)…"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

demo: setup
	@$(BIN)/thumbwheel demo

test: setup
	@$(BIN)/python -m pytest

check: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

proof: setup
	@$(BIN)/python -m pytest -m slow -s --ignore=tests/chaos

# Error rates, coverage and power of every method on simulated experiments; some 10 minutes.
aa: setup
	@$(BIN)/python -m benchmarks.aa

# Some 27 minutes; the rounds with a full disk need root, those with clock jumps a C compiler.
chaos: setup
	@$(BIN)/python -m pytest tests/chaos -m slow -s

# BENCH=--long adds memory and start-up, BENCH='--phoenix PYTHON' a peer.
bench: setup
	@$(BIN)/python -m benchmarks.ingest $(if $(KAFKA_HOME),--kafka-home $(KAFKA_HOME)) $(BENCH)

# BENCH='--gbstats PYTHON --spotify PYTHON' adds rivals that need environments of their own, '--folder F'
# ten million facts: some minutes and 2.5 GB the first time.
bench-experiments: setup
	@$(BIN)/python -m benchmarks.experiments $(BENCH)

# Exact versions for every platform and Python from 3.11 on; needs uv.
lock:
	uv pip compile --quiet --universal --python-version 3.11 --extra dev --no-emit-index-url --no-emit-find-links --no-header -o requirements.lock pyproject.toml

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
