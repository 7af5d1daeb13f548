# Two commands do all the set-up: `make site` and `make test`. Each prepares .venv itself when it has to.
PYTHON ?= python3
# cpu, cuda, or auto: cuda where an NVIDIA driver answers
TORCH ?= auto
# 0 builds from the committed records alone, without running anything here
LOCAL ?= 1
SITE_URL ?= http://127.0.0.1:8000/
LANGUAGE ?= en

CONFIG_en := mkdocs.yml
CONFIG_zh := mkdocs.zh.yml
PORT_en := 8000
PORT_zh := 8001
BIN := .venv/bin
READY := .venv/ready-$(TORCH)
BUILD := $(BIN)/python -m mkdocs build
BUNDLE = $(BIN)/python -m ledger bundle site --address $(SITE_URL) $(if $(filter 0,$(LOCAL)),--committed)
SIDE_BY_SIDE := side_by_side() { $$1 & first=$$!; $$2; second=$$?; wait $$first && test $$second = 0; }
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Tests share two to four cores; SLOW=1 takes all of what they else draw a part of, SEED=… the same part again
SLOW ?= 0
PYTEST := $(BIN)/python -m pytest -n logical --maxprocesses 4
# What `make quick` runs beside the code of the pages that git says have changed
QUICK := arithmetic check choice figures formulas glossary katex languages numbers plan series tables texts units waiting
PAGES = $(shell git diff --name-only --diff-filter=d HEAD -- 'docs/en/*.md'; git ls-files -o --exclude-standard -- 'docs/en/*.md')
export LOCAL SITE_URL SLOW
export NO_MKDOCS_2_WARNING := 1
# Hundreds of short processes import the book: where the environment says not to keep compiled modules, each would compile
export PYTHONDONTWRITEBYTECODE :=

.PHONY: site book offline serve test quick exact record compare bench status zensical format update clean

# Two at once build one after the other: the lock lasts as long as the shell that holds it.
site: $(READY)
ifneq ($(LOCAL),0)
	$(BIN)/python -m ledger run
endif
	$(BIN)/python -m ledger check $(if $(filter 0,$(LOCAL)),--committed)
	mkdir -p .cache; exec 9>.cache/site.lock; $(BIN)/python -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)'; \
	export LAB_CACHE=$(if $(filter 0,$(LOCAL)),false,true) LAB_OUTPUTS=$(if $(filter 0,$(LOCAL)),.cache/labs-once); rm -rf .cache/labs-once; \
	$(SIDE_BY_SIDE); side_by_side "$(BUILD)" "env SITE_URL=$(SITE_URL)zh/ $(BUILD) -f mkdocs.zh.yml -d .cache/site-zh" && \
	rm -rf site/zh && mv .cache/site-zh site/zh && \
	side_by_side "$(BUNDLE) --language en" "$(BUNDLE) --language zh"

# PDF and EPUB in both languages, into site/downloads/, of the site as it stands in site/: ledger/site/bind says how
book: $(READY)
	test -f site/index.html || $(MAKE) site
	$(SIDE_BY_SIDE); bind="$(BIN)/python -m ledger bind site --language"; side_by_side "$$bind en" "$$bind zh"

# The site as it stands in site/, once more in a folder that works when opened from the disk: flops-and-bytes/index.html
offline: $(READY)
	test -f site/index.html || $(MAKE) site
	$(BIN)/python -m ledger offline site flops-and-bytes

# A snippet that changes is run again, its new record makes the page show the new numbers: here this machine stands first,
# elsewhere the published device. `make serve LANGUAGE=zh`, at the next port, can run beside it.
serve: $(READY)
	$(BIN)/python -m ledger run || true
	$(BIN)/python -m ledger run --watch & watcher=$$!; trap "kill $$watcher" EXIT; trap "exit 130" INT TERM; \
	LAB_CACHE=true FIRST_DEVICE=this-machine SITE_URL=http://127.0.0.1:$(PORT_$(LANGUAGE))/ \
	$(BIN)/python -m mkdocs serve -f $(CONFIG_$(LANGUAGE)) -a 127.0.0.1:$(PORT_$(LANGUAGE)) \
		--watch .cache/runs --watch measurements --watch figures --watch docs/overrides --watch docs/labs --watch planner

# mypy works beside the tests and speaks after them.
test: $(READY)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	mkdir -p .cache; $(BIN)/python -m mypy >.cache/mypy.txt 2>&1 & mypy=$$!; trap "kill $$mypy" INT TERM; \
	$(PYTEST); tested=$$?; wait $$mypy; typed=$$?; echo "mypy: $$(cat .cache/mypy.txt)"; test $$tested$$typed = 00

# For what one edits, in less than a minute: nothing that needs the built site
quick: $(READY)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ledger check --committed
	$(PYTEST) --quick $(foreach name,$(QUICK),$(wildcard tests/*/test_$(name).py tests/*/*/test_$(name).py)) $(PAGES)

# Exact values once more, with other kernels: they sum in another order. Minutes, and so not a part of `make test`.
exact: $(READY)
	$(BIN)/python -m pytest tests/ledger/turned_down.py

# But for slow snippets: .venv/bin/python -m ledger record --slow
record: $(READY)
	$(BIN)/python -m ledger record

# This machine beside a published device: make compare DEVICE=nvidia-h200
compare: $(READY)
	$(BIN)/python -m ledger run
	$(BIN)/python -m ledger compare $(DEVICE)

bench: $(READY)
	$(BIN)/python -m tests.bench

status: $(READY)
	$(BIN)/python -m ledger status

format: $(READY)
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

# Does the site depend on its generator? Builds the same sources with the newest Zensical and reports what differs.
zensical: $(READY)
	sed 's/ *\\$$//; /--hash/d' .github/constraints.txt > .cache/versions.txt # the newest Zensical is in no list with hashes
	$(PIP_INSTALL) --upgrade --target .cache/zensical --constraint .cache/versions.txt zensical
	$(MAKE) site LOCAL=0
	$(BIN)/python -m tests.zensical

# Set-up. torch comes first and apart: its builds differ by machine, so no lock file can hold them. All else has to have the
# hashes of constraints.txt, and so has what builds the two packages of which there is source alone.
$(READY): pyproject.toml .github/constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; try make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP_INSTALL) pip==26.3
	rm -f .venv/ready-*
	set -e; build=$(TORCH); \
	if [ $$build = auto ]; then if nvidia-smi >/dev/null 2>&1; then build=cuda; else build=cpu; fi; fi; \
	has=$$($(BIN)/python -c 'from importlib.metadata import version; print(version("torch"))' 2>/dev/null || true); \
	case $$build,$$has in cuda,*+cpu | cpu,*+cu*) $(BIN)/python -m pip uninstall --quiet --yes torch ;; esac; \
	case $$build in \
	cpu) $(PIP_INSTALL) --group torch --extra-index-url https://download.pytorch.org/whl/cpu --retries 0 --timeout 15 ;; \
	cuda) $(PIP_INSTALL) --group torch ;; \
	*) echo "TORCH is $$build; it can be auto, cpu or cuda" >&2; exit 2 ;; esac
	$(PIP_INSTALL) --group snippets --group site --group test $(foreach of,constraint build-constraint,--$(of) .github/constraints.txt)
	$(PIP_INSTALL) --no-build-isolation --no-deps --editable . # the library, as it is here: flops-bytes, and snippets by hand
	touch $@

# After changing a version in pyproject.toml: pins what comes with it, on every system and Python, with the hashes of all
# files; then installs anew. Not torch, nor what comes with it alone.
update:
	$(PIP_INSTALL) uv==0.13.9
	$(BIN)/uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-annotate --no-header \
		$(foreach group,snippets site test,--group pyproject.toml:$(group)) --output-file .cache/constraints.txt
	awk '/^[^ ]/ { keep = !/^(torch==|triton|nvidia|cuda)/ } keep' .cache/constraints.txt > .github/constraints.txt
	rm -rf .venv
	$(MAKE) $(READY)

clean:
	rm -rf .cache site flops-and-bytes
