# Two commands for a newcomer: `make run` and `make test`. Everything lives in .venv; nothing else is touched.
PYTHON ?= python3
VENV ?= .venv
PERFGUARD_ENVS ?= .perfguard/stacks
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: run test test-long test-fast coverage parity check lint types layers mutants schemas codes proof-gates proof-estimators proof-peers proof-culprits proof-culprits-of-changes proof-forks proof-op-counts proof-traces proof-tui proof-kernels proof-recipes proof-tune proof-hetero proof-hetero-gates proof-tasks proof-untouched proof-sandbox proof-result-checks proof-crashes proof-change-points proof-history proof-fleet proof-readers proof-slips fuzz fuzz-api pictures docs build clean help

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt 'torch==2.13.0'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[fleet,github,hetero,litert,mcp,mnist,onnxruntime,openvino,postgresql,serve,tasks,torch,torchao,tui]' \
	    asv axe-playwright-python build hatchling hypothesis import-linter jsonschema kubernetes-validate linkify-it-py markdown-it-py mypy playwright pyarrow pytest \
	    pytest-benchmark pytest-cov pytest-httpserver pytest-timeout pytest-xdist \
	    ruamel.yaml ruff 'zensical; python_version >= "3.11"' 'pre-commit; python_version >= "3.11"' 'schemathesis; python_version >= "3.11"' 'check-jsonschema; python_version >= "3.11"' 'zizmor; python_version >= "3.11"'
	touch $(READY)

run: $(READY) ## Fingerprint this machine, measure the quick suite, compare, judge
	$(BIN)/perfguard gate --suite quick $(ARGS)

# Every process of a test that starts pytest would rewrite all its plugins' assertions again, 1.3 s of CPU time each.
test test-long test-fast: export PYTHONDONTWRITEBYTECODE :=

# What measures runs in one process, all the rest in three beside it.
TEST := $(BIN)/python -m pytest -n 4 --dist loadscope --no-loadscope-reorder --durations=12
test: $(READY) ## The test suite
	$(TEST) -m 'not long' $(ARGS)

test-long: $(READY) ## The tests that take longest; a shorter one in `make test` holds the path of each
	$(TEST) -m long $(ARGS)

test-fast: $(READY) ## Unit and property tests alone
	$(BIN)/python -m pytest -n 2 tests/unit tests/property $(ARGS)

COVERAGE := --cov --cov-report=term:skip-covered --cov-fail-under=95
coverage: ## The test suite, with the coverage by branch of gate/ and stats/
	$(MAKE) --no-print-directory test ARGS="$(COVERAGE) $(ARGS)"

docs: $(READY) ## The documentation as a site in .perfguard/site; a broken link fails
	$(BIN)/python -m zensical build --strict

PARITY := .perfguard/parity
parity: ## The networks equal torchvision's; in the IPEX environment (`perfguard env create ipex`), whose torch torchvision fits
	$(PERFGUARD_ENVS)/ipex/bin/python -m pip install --quiet --disable-pip-version-check --upgrade --target $(PARITY) --no-deps \
	    torchvision==0.23.0 pillow==11.3.0 pytest==8.4.2 pluggy==1.6.0 iniconfig==2.1.0 pygments==2.19.2
	PYTHONPATH=$(PARITY):. $(PERFGUARD_ENVS)/ipex/bin/python -m pytest -q --noconftest -c /dev/null --rootdir . -p no:cacheprovider \
	    tests/integration/test_parity_torchvision.py

check: lint types layers test ## Everything that CI checks

lint: $(READY) ## Format and lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY) ## mypy, strict
	$(BIN)/mypy

layers: $(READY) ## import-linter contracts
	$(BIN)/lint-imports

mutants: $(READY) ## Change the deciding modules one place at a time; which changes does no unit test notice? (resumes; see CONTRIBUTING.md)
	nice -n 10 $(BIN)/python -m tests.mutants $(ARGS)

schemas: $(READY) ## Write the published JSON schemas anew
	for name in result profile events fingerprint task; do \
	    $(BIN)/perfguard schema $$name > perfguard/schemas/$$name.schema.json || exit 1; done

codes: $(READY) ## Write docs/codes.md and docs/cli.md anew from the messages and the commands
	$(BIN)/python -m tests.documented_codes
	$(BIN)/python -m tests.documented_commands

proof-gates: $(READY) ## Measure open gates and small slowdowns in 48 live gates, beside those of calibrations (three and a half hours, nothing else running; resumes)
	$(BIN)/python -m tests.proof.live_gates $(ARGS)

proof-estimators: $(READY) ## Compare estimators of a block on the runs of proof-gates and of calibrations (a minute)
	$(BIN)/python -m tests.proof.block_estimators $(ARGS)

proof-peers: $(READY) ## Measure the gate against its peers on this machine (hours, in slices; nothing else running)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    -c tests/proof/gates_against_peers/constraints.txt matplotlib
	$(BIN)/python -m tests.proof.gates_against_peers $(or $(ARGS),all)

proof-culprits: $(READY) ## Measure whether injected culprits are named first (an hour and a half, nothing else running; resumes)
	$(BIN)/python -m tests.proof.culprits_of_injections $(ARGS)

proof-culprits-of-changes: $(READY) ## Measure whether slow Python and data code is named by its line (an hour, nothing else running; resumes)
	$(BIN)/python -m tests.proof.culprits_of_changes $(ARGS)

proof-forks: $(READY) ## Measure whether forked workers measure as fresh processes do (half an hour, nothing else running; resumes)
	$(BIN)/python -m tests.proof.forked_workers $(ARGS)

proof-op-counts: $(READY) ## Count every case of the catalogue in two fresh workers (two hours; resumes)
	$(BIN)/python -m tests.proof.op_counts_of_catalogue $(ARGS)

proof-traces: $(READY) ## Measure what comparing two traces of a million events takes (some minutes, nothing else running)
	$(BIN)/python -m tests.proof.trace_diff_speed $(ARGS)

proof-tui: $(READY) ## Measure what the TUI costs: CPU at 1 Hz, memory after 8 hours (some minutes, nothing else running)
	$(BIN)/python -m tests.proof.tui_cost $(ARGS)

proof-kernels: $(READY) ## Measure the focal losses against the reference and the memory's bandwidth (some minutes, nothing else running)
	$(BIN)/python -m tests.proof.focal_losses $(ARGS)

proof-recipes: $(READY) ## Measure the optimized recipes of training steps, toggle by toggle (an hour, nothing else running; resumes)
	$(BIN)/python -m tests.proof.optimized_recipes $(ARGS)

proof-tune: $(READY) ## Measure whether tune ends near the best of a full grid, in how much of its time (hours to days; resumes)
	$(BIN)/python -m tests.proof.tune_against_grid $(ARGS)

proof-hetero: $(READY) ## Measure what heterogeneous training's coordinator costs, and hogwild's scaling (some minutes, nothing else running)
	$(BIN)/python -m tests.proof.heterogeneous_training $(ARGS)

proof-hetero-gates: $(READY) ## Gate four changes that break heterogeneous training, and equal trees (three quarters of an hour, nothing else running; resumes)
	$(BIN)/python -m tests.proof.gates_of_training $(ARGS)

proof-tasks: $(READY) ## Measure tasks: false alarms, a slowdown of 5 %, matrices, run sizes (an hour and a half, nothing else running; resumes)
	$(BIN)/python -m tests.proof.tasks_measured $(ARGS)

proof-untouched: $(READY) ## Measure gates of changes that touch one of three models (a quarter of an hour, nothing else running)
	$(BIN)/python -m tests.proof.untouched_gates $(ARGS)

proof-sandbox: $(READY) ## Measure what the sandbox of untrusted code costs: the same gates inside and outside (20 minutes, nothing else running)
	$(BIN)/python -m tests.proof.sandbox_cost $(ARGS)

proof-result-checks: $(READY) ## Measure what it costs to compare results while cases are timed (ten minutes, nothing else running)
	$(BIN)/python -m tests.proof.cost_of_result_checks $(ARGS)

proof-crashes: $(READY) ## Kill, suspend and starve gates 300 times, and look at what is lost and left (half an hour; needs a C compiler)
	$(BIN)/python -m tests.proof.crashes $(ARGS)

proof-change-points: $(READY) ## Hold the rule for change points against others on series with known ones (some minutes; needs apache-otava from PyPI)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --no-deps --target .perfguard/otava apache-otava==0.8.0
	$(BIN)/python -m tests.proof.change_points $(ARGS)

proof-history: $(READY) ## The history with 10 million values on SQLite and PostgreSQL, and 200 kills of its writers (a quarter of an hour; needs PostgreSQL)
	$(BIN)/python -m tests.proof.history_of_ten_million $(ARGS)

proof-fleet: $(READY) ## Measure what the fleet costs, and simulate a night of 1,000 hosts (15 minutes, nothing else running)
	$(BIN)/python -m tests.proof.fleet_at_scale $(ARGS)

proof-readers: $(READY) ## Two hundred readers of `perfguard serve` over ten million values (12 minutes, nothing else running)
	$(BIN)/python -m tests.proof.readers_of_pages $(ARGS)

proof-slips: $(READY) ## A case that slips by 4 % over 30 commits, gated live (half an hour, nothing else running)
	$(BIN)/python -m tests.proof.slips_over_commits $(ARGS)

fuzz-api: $(READY) ## Ten thousand requests to the API of `perfguard serve`, made from its own schema
	PERFGUARD_FUZZED_REQUESTS=800 $(BIN)/python -m pytest -q tests/integration/service/test_fuzzed_api.py $(ARGS)

fuzz: $(READY) ## Damage what others write, for an hour: no traceback, no hang, no gigabyte (findings go to tests/fuzz/corpus)
	$(BIN)/python -m tests.fuzz $(ARGS)

pictures: $(READY) ## Draw the documents' pictures anew: screens of the TUI, charts of committed reports (needs Chromium)
	$(BIN)/python -m tests.tui_pictures
	$(BIN)/python -m tests.page_pictures

build: $(READY) ## Wheel and sdist
	$(BIN)/python -m build

clean: ## Remove what the targets made
	rm -rf $(VENV) build dist *.egg-info
