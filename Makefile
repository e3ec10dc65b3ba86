# `make demo` and `make test` are all that a newcomer needs; `make help` lists the rest.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
DEMO   := demo

.DEFAULT_GOAL := help
.PHONY: help install demo test test-engines test-watching lint wheels sample schemas settings bench bench-corpus bench-tokenizer bench-trainer bench-overheads clean-kernels clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(VENV)/installed  ## make .venv and install the five packages into it

$(VENV)/installed: requirements-dev.txt $(wildcard packages/*/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; name one with make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

demo: install  ## raw text to a trained and exported model, on this machine's own text
	rm -rf $(DEMO)/run $(DEMO)/model
	$(BIN)/python pipelines/demo_corpus.py $(DEMO)/raw
	$(BIN)/prep run pipelines/demo.toml
	$(BIN)/pretrain run --config pipelines/demo-train.toml --mixture $(DEMO)/data/mixture.json --out $(DEMO)/run
	$(BIN)/pretrain export $(DEMO)/run --out $(DEMO)/model
	$(BIN)/pretrain sample $(DEMO)/run --prompt 'def read(self' --tokens 96
	$(BIN)/prep lineage $(DEMO)/model

test: install  ## every test but those that bring up a cluster or want trackers
	$(BIN)/python -m pytest -n auto --dist loadfile --ignore=tests/engines --ignore=tests/watching

test-engines: install  ## stages on Ray and on Slurm; as root, a one-node Slurm is installed and brought up for it
	TOKENMILL_START_SLURM=1 $(BIN)/python -m pytest -rs tests/engines

test-watching: install  ## trackers, lm-evaluation-harness and the report in a browser, the real ones; as root, Chromium is installed
	@if [ "$$(id -u)" = 0 ] && ! command -v chromium >/dev/null; then apt-get update -qq && apt-get install -y -qq chromium >/dev/null; fi
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-watching.txt
	$(BIN)/python -m pytest -n auto --dist loadfile -rs tests/watching packages/trainer/tests/test_fp8.py

lint: install  ## style, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

wheels: install  ## build each package's wheel and import it alone in a fresh environment
	PYTHON=$(BIN)/python sh tests/wheels.sh

settings: install  ## write docs/settings.md from the code
	$(BIN)/python docs/make_settings.py > docs/settings.md

schemas: install  ## write the JSON Schemas of all manifest kinds
	$(BIN)/python -m tokenmill_core.schemas manifests/schemas

sample: install  ## build the sample chain in manifests/sample again
	rm -rf manifests/sample/data
	$(BIN)/prep run manifests/sample/recipe.toml

bench: install $(VENV)/peers/installed  ## loading beside NumPy, litdata, Megatron and mosaicml-streaming; start-up at 15T tokens; packing
	$(BIN)/python benchmarks/loading.py --peers $(VENV)/peers/bin/python
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/packing.py

$(VENV)/peers/installed: benchmarks/requirements-loading.txt | install
	$(BIN)/python -m venv $(VENV)/peers
	$(VENV)/peers/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/requirements-loading.txt
	@touch $@

TEXT   ?=
bench-corpus: install  ## corpus rules, dedup and `prep clean` beside datatrove, rensa and a suffix array; TEXT="FILE..." adds text
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r benchmarks/requirements.txt
	for part in filters dedup cuts clean; do $(BIN)/python benchmarks/corpus_$$part.py $(TEXT) || exit 1; done

bench-tokenizer: install  ## training and `prep tokenize` beside tokenizers, gigatoken, rustbpe, Megatron's loop and datatrove; TEXT="FILE..." adds text
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r benchmarks/requirements.txt
	for part in train encode; do $(BIN)/python benchmarks/tokenizer_$$part.py $(TEXT) || exit 1; done

bench-trainer: install $(VENV)/trainer-peers/installed  ## a training step beside transformers', torchtitan's and litgpt's Llama
	$(BIN)/python benchmarks/trainer.py --peers $(VENV)/trainer-peers/bin/python

$(VENV)/trainer-peers/installed: benchmarks/requirements-trainer.txt | install
	$(BIN)/python -m venv $(VENV)/trainer-peers
	$(VENV)/trainer-peers/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/requirements-trainer.txt
	@touch $@

bench-overheads: install  ## all that `pretrain run` does besides training steps, beside bare steps; TEXT="FILE..." adds text
	$(BIN)/python benchmarks/overheads.py $(TEXT)

clean-kernels:  ## forget compiled kernels
	find packages -name '*.nb[ci]' -delete

clean:  ## remove what the targets above made
	rm -rf $(VENV) $(DEMO) dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find packages tests -name __pycache__ -type d -prune -exec rm -rf {} +
