# Everything a developer runs. Each target makes .venv first, so a fresh clone needs Python 3.11+, git and make only.

PYTHON ?= python3
ARGS ?=
IMAGES ?= build/browser

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
HEAVY_PIP := .heavy-env/bin/python -m pip --disable-pip-version-check -qq
BENCH_PIP := .bench-env/bin/python -m pip --disable-pip-version-check -qq
# .demo and .dev say when the two sets of packages were installed last. The second holds the first.
DEMO_READY := .venv/.demo
DEV_READY := .venv/.dev
FUZZ_READY := .venv/.fuzz

.PHONY: help demo test audit faults hosts paper simulate hostile fuzz soak conformance lint lint-code lint-contract lint-deploy lint-docs docs containers monitoring browser release interop format stubs test-heavy bench bench-env bench-peers bench-page peers-env constraints clean
.DELETE_ON_ERROR:

help: ## Show this list
	@echo "make TARGET [ARGS=...] [PYTHON=python3.12]"
	@sed -n 's/^\([a-z-]*\):.*## /  \1|/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do \
		printf '%-14s %s\n' "$$name" "$$text"; done

demo: $(DEMO_READY) ## One server, five clients, one private model (ARGS="--seed 3")
	@$(BIN)/hushgrad demo $(ARGS)

test: $(DEV_READY) ## Run the tests (ARGS="tests/server -k resume")
	@$(BIN)/python -m pytest -q -n auto --dist loadfile $(ARGS)

audit: $(DEV_READY) ## Attack the client's privacy, and every planted bug's; table, audit.json, audit.png (ARGS="--minutes 3")
	@$(BIN)/python -m tests.attacks $(ARGS)

conformance: $(DEV_READY) ## Judge our client and server, and plant every fault (a few minutes)
	@HUSHGRAD_WHOLE_CONFORMANCE=1 $(BIN)/python -m pytest -q tests/conformance_kit $(ARGS)

faults: $(DEV_READY) ## Kill, cut, fill and disturb for minutes; needs root (ARGS="-k partition")
	@$(BIN)/python -m tests.faults.needs
	@$(BIN)/python -m pytest -q -n 3 --dist loadfile -m faults $(ARGS)

hosts: $(DEV_READY) ## Make experiments as processes and on three hosts with sshd; needs root (ARGS="-k processes")
	@$(BIN)/python -m pytest -q -m backends tests/backends $(ARGS)

paper: $(DEV_READY) ## Repeat the paper's strongly convex figure and what goes beyond it, and check the accuracies
	@$(BIN)/python -m pytest -q -s -m paper tests/paper $(ARGS)

simulate: $(DEV_READY) ## Run 20,000 simulated schedules of faults, and look for every planted bug
	@$(BIN)/python -m tests.faults.simulator --seeds 0:20000 --output simulated.json
	@$(BIN)/python -m tests.faults.planted.plant --output planted.json

soak: $(DEV_READY) ## Everything at once, for ten minutes (ARGS="--minutes 2 --out soak.json")
	@$(BIN)/python -m tests.faults.soak $(ARGS)

hostile: $(DEV_READY) ## 500 silent sockets, 200 half-sent uploads, a dribbler, a flood: what a good client feels
	@$(BIN)/python -m tests.faults.attackers $(ARGS)

fuzz: $(FUZZ_READY) ## Fuzz decoder, admission and services with coverage (ARGS="--minutes 2")
	@$(BIN)/python -m tests.fuzz $(ARGS)

lint: lint-code lint-contract lint-deploy lint-docs ## Check format, types, contract, container files and pages

lint-code: $(DEV_READY)
	@$(BIN)/ruff format --check --quiet || { echo "lint: run 'make format'" >&2; exit 1; }
	@$(BIN)/ruff check --quiet
	@$(BIN)/mypy --no-error-summary
	@echo "lint: code is formatted, typed and clean"

lint-contract: $(DEV_READY)
	@cd protos && ../$(BIN)/buf lint && ../$(BIN)/buf breaking --against buf-image.binpb
	@$(BIN)/python -m pytest -q --no-header -p no:cacheprovider tests/protos/test_stubs.py tests/protos/test_image.py \
		tests/repository
	@echo "lint: contract, stubs and imports hold"

lint-deploy: $(DEV_READY)
	@$(BIN)/hadolint --config deploy/hadolint.yaml deploy/*.Dockerfile
	@for file in docker-compose.yml deploy/compose.*.yml; do \
		$(BIN)/docker-compose --file $$file --profile '*' config --quiet || exit 1; done
	@$(BIN)/python -m tests.deploy.manifests
	@echo "lint: container files and manifests hold"

lint-docs: $(DEV_READY)
	@$(BIN)/python docs/make_reference.py --check
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs --quiet build --strict --site-dir build/site
	@echo "lint: pages are complete and their links hold"

docs: $(DEV_READY) ## Write the reference from the code, and build the pages into build/site
	@$(BIN)/python docs/make_reference.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs --quiet build --strict --site-dir build/site
	@echo "open build/site/index.html"

containers: $(DEV_READY) ## Build the images and run docker-compose.yml without an engine; needs root (ARGS=--rebuild)
	@$(BIN)/python -m tests.deploy.containers $(ARGS)

monitoring: $(DEV_READY) ## Test the alert rules, and let a real Prometheus watch a federation stall (needs Prometheus)
	@$(BIN)/python -m tests.deploy.monitoring
	@$(BIN)/python -m pytest -q -m monitoring tests/e2e/test_monitoring.py $(ARGS)

browser: .venv/.browser ## Drive the page in Chromium over a running demo; IMAGES=docs/images renews the documentation's
	@HUSHGRAD_IMAGES=$(IMAGES) $(BIN)/python -m pytest -q -m browser tests/browser $(ARGS)

release: .venv/.release ## Make wheel, source, contract, image definitions, SBOM and changes into dist/, and try them
	@$(BIN)/python deploy/release.py

interop: $(DEV_READY) ## Let our client, the minimal one and the Node.js one learn together and alone (needs Node.js)
	@$(BIN)/python examples/interop.py $(ARGS)

format: $(DEV_READY) ## Format the code and repair what can be repaired
	@$(BIN)/ruff check --fix --quiet || true
	@$(BIN)/ruff format

stubs: $(DEV_READY) ## Make the Python stubs of protos/hushgrad/v1 anew
	@$(BIN)/python protos/generate.py

bench: $(DEV_READY) ## Measure for some minutes, print tables, write bench.json (ARGS="server", ARGS="rounds --sizes 69")
	@# With the kernels that numpy's own library chooses for this processor, whatever the machine prescribes elsewhere.
	@env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(BIN)/python -m benchmarks --output bench.json $(ARGS)

test-heavy: .heavy-env/.ready ## Test what needs PyTorch and JAX, and run the loops of examples/loops
	@.heavy-env/bin/python -m pytest -q -m heavy -n 2 tests/heavy $(ARGS)
	@$(BIN)/python tests/heavy/covered.py --write

bench-peers: $(DEV_READY) peers-env ## Play the same rounds with Flower and FLARE, write bench-peers.json (ARGS="--sizes 69")
	@$(BIN)/python -m benchmarks.peers --output bench-peers.json $(ARGS)

bench-page: $(DEV_READY) ## Draw docs/performance.md from bench.json and bench-peers.json
	@$(BIN)/python -m benchmarks.page bench.json bench-peers.json

peers-env: $(addprefix .peers-env/,$(addsuffix /.ready,flower-legacy flower flare)) ## Install Flower and FLARE, each in an environment of its own

bench-env: .bench-env/.ready ## Install what we are measured against, in an environment of its own

constraints: ## Choose newest versions of everything and pin them in constraints.txt
	@rm -rf .constraints-env
	@$(call make_environment,.constraints-env)
	@echo "choosing versions; this takes a few minutes"
	@.constraints-env/bin/python -m pip --disable-pip-version-check -qq install '.[dev,bench,release,fuzz,browser]'
	@{ sed -n '/^#/p' constraints.txt; \
		.constraints-env/bin/python -m pip --disable-pip-version-check freeze --exclude hushgrad \
		| grep -E '^[A-Za-z0-9._-]+==[^ ]+$$'; } > .constraints-env/new
	@cp .constraints-env/new constraints.txt
	@rm -rf .constraints-env

clean: ## Remove environments, caches and build outputs; runs/ stays
	@rm -rf .venv .bench-env .peers-env .heavy-env .constraints-env .mypy_cache .pytest_cache .ruff_cache dist bench.json bench-peers.json
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# make_environment(FOLDER): a virtual environment that works; made anew when it is missing or broken.
define make_environment
$(1)/bin/python -m pip --version >/dev/null 2>&1 || { \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "make: Python 3.11 or newer is needed and '$(PYTHON)' is not; try: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; \
		exit 1; }; \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "make: '$(PYTHON)' lacks the venv module; on Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }; \
	$(PYTHON) -m venv --clear $(1); }
endef

$(DEMO_READY): pyproject.toml constraints.txt
	@$(call make_environment,.venv)
	@echo "installing hushgrad into .venv; this takes about a minute, once"
	@$(PIP) install -c constraints.txt -e '.[experiments]'
	@touch $@

$(DEV_READY): pyproject.toml constraints.txt
	@$(call make_environment,.venv)
	@echo "installing hushgrad and the tools into .venv; this takes a minute or two, once"
	@$(PIP) install -c constraints.txt -e '.[dev,bench]'
	@touch $(DEMO_READY) $@

# A compiled fuzzer: only who fuzzes installs it.
$(FUZZ_READY): $(DEV_READY)
	@echo "installing the fuzzer into .venv"
	@$(PIP) install -c constraints.txt -e '.[fuzz]'
	@touch $@

# In an environment of its own: PyTorch and JAX are large, and bring other versions of what they share with us.
.heavy-env/.ready: pyproject.toml constraints.txt tests/heavy/frameworks.txt $(DEV_READY)
	@$(call make_environment,.heavy-env)
	@echo "installing hushgrad, PyTorch and JAX into .heavy-env; this takes some minutes, once"
	@# PyTorch's sympy wants an older mpmath than we pin for a test of ours.
	@grep -v '^mpmath==' constraints.txt > .heavy-env/constraints.txt
	@$(HEAVY_PIP) install -r tests/heavy/frameworks.txt
	@$(HEAVY_PIP) install -c .heavy-env/constraints.txt -e '.[experiments]' pytest pytest-timeout pytest-xdist
	@touch $@

# Playwright's own Chromium is fetched only where the system has none.
.venv/.browser: $(DEV_READY)
	@$(PIP) install -c constraints.txt -e '.[browser]'
	@command -v chromium chromium-browser >/dev/null || test -n "$$HUSHGRAD_CHROMIUM" || $(BIN)/playwright install chromium
	@touch $@

.venv/.release: $(DEV_READY)
	@$(PIP) install -c constraints.txt -e '.[release]'
	@touch $@

.bench-env/.ready: benchmarks/peers.txt
	@$(call make_environment,.bench-env)
	@echo "installing what we are measured against, PyTorch among it, into .bench-env; this takes a few minutes, once"
	@$(BENCH_PIP) install -r benchmarks/peers.txt
	@touch $@

.peers-env/%/.ready: benchmarks/peers-%.txt
	@$(call make_environment,.peers-env/$*)
	@echo "installing $* into .peers-env/$*; this takes a minute, once"
	@.peers-env/$*/bin/python -m pip --disable-pip-version-check -qq install -r $<
	@touch $@
