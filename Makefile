# `make demo` and `make test` set up all they need in .venv and run.
VENV   ?= .venv
PY      = $(VENV)/bin/python
# Tests start a thousand Pythons: each would compile all modules again.
PYTEST  = env -u PYTHONDONTWRITEBYTECODE $(PY) -m pytest
NEED    = import sys; sys.exit(sys.version_info < (3, 11) or sys.version_info >= (3, 15))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	$$p -c '$(NEED)' 2>/dev/null && echo $$p && break; done)

# Distributions of their own in this repository, beside the gateway's.
BESIDE  = packages/gateway-demo packages/gateway-testkit packages/rsio-check
EXAMPLES = examples/syslog examples/otlp examples/bulk

# Spark's tests run with these too, each the lowest that pyproject.toml allows.
LOWEST  = pyspark pyarrow

.PHONY: help demo test long long-tests long-lowest long-weeks long-pressure long-kernel simulate mutants native test-clients check format bench docs lock release clean
help:
	@echo "make demo    the whole path on this machine: senders, gateway, Spark, audit; ARGS=--edge: two"
	@echo "             edges before a hub; ARGS=--cluster: three gateways, S3, a Spark cluster, Iceberg"
	@echo "make test    the tests; eight minutes on two cores"
	@echo "make long    all tests and samples, and those with the lowest Spark and pyarrow; or"
	@echo "             ONLY=tests, lowest, weeks, pressure, kernel (see CONTRIBUTING.md)"
	@echo "make simulate  one process, one seed at a time: faults at every step, for a minute"
	@echo "make mutants  breaks the code in each way of a list, and says which test notices"
	@echo "make test-clients  the RS.io clients for the JVM and in JavaScript"
	@echo "make check   ruff and mypy --strict; make format mends what ruff can"
	@echo "make bench   the table of figures, measured here (40 minutes; ARGS=--quick: 6)"
	@echo "make docs    the documentation as a site, in site/"
	@echo "make release  packages, notes, lists of parts, in dist/, and a look at them all"
	@echo "make native, lock, clean  the kernel in C, or why not; requirements/ anew; all that was made goes"

$(PY):
	@test -n "$(PYTHON)" || { echo "gateway needs Python 3.11 to 3.14, and found none on the PATH."; \
		echo "Install one, or name it: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Setting up $(VENV) with $$($(PYTHON) --version) …"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "Python's venv module is missing; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }

# One stamp per set of packages; a changed pyproject.toml installs again.
$(VENV)/.run $(VENV)/.cluster $(VENV)/.test $(VENV)/.check $(VENV)/.release: pyproject.toml $(BESIDE:=/pyproject.toml) $(EXAMPLES:=/pyproject.toml) | $(PY)
	@echo "Installing what '$(patsubst .%,%,$(notdir $@))' needs (Spark is 450 MB; a few minutes the first time) …"
	@$(PY) -m pip install --quiet --disable-pip-version-check --progress-bar on \
		-e '.[$(EXTRAS)]' $(PACKAGES) || { echo "The installation failed; see above. It needs PyPI or a mirror of it."; exit 1; }
	@touch $@ $(MORE:%=$(VENV)/.%)
$(VENV)/.run:     EXTRAS = spark
$(VENV)/.cluster: EXTRAS = iceberg,s3
$(VENV)/.test:    EXTRAS = spark,test,docs
$(VENV)/.check:   EXTRAS = spark,test,docs,check,release
$(VENV)/.release: EXTRAS = release
# These have what others need, too.
$(VENV)/.test:    MORE = run
$(VENV)/.check:   MORE = run test release
$(VENV)/.release: PACKAGES =
PACKAGES = $(BESIDE:%=-e %)
$(VENV)/.cluster: PACKAGES = -e 'packages/gateway-demo[cluster]' -e packages/gateway-testkit -e packages/rsio-check
$(VENV)/.test $(VENV)/.check: PACKAGES = $(BESIDE:%=-e %) $(EXAMPLES:%=-e '%[test]')

# The kernel in C, where there are a compiler and Python's headers; nothing needs it.
$(VENV)/.native: packages/gateway-native/pyproject.toml packages/gateway-native/hatch_build.py packages/gateway-native/gateway_native/kernel.c | $(PY)
	@$(PY) -m pip install --quiet --disable-pip-version-check -e packages/gateway-native
	@$(PY) -c 'import gateway_native' 2>/dev/null || echo "No C compiler or no Python.h: the gateway goes on without its kernel in C, which only saves CPU."
	@touch $@
native:
	@$(PY) -c 'import gateway_native' 2>/dev/null || rm -f $(VENV)/.native
	@$(MAKE) --no-print-directory $(VENV)/.native
	@$(PY) -c 'import gateway_native' 2>/dev/null || { \
		echo "It needs a C compiler and Python's headers; on Debian and Ubuntu: apt-get install gcc libc6-dev python3-dev"; exit 1; }

# The cluster's in an environment of its own: Iceberg's jars fit an older Spark.
ifneq (,$(filter --cluster,$(ARGS)))
demo: VENV = .venv-cluster
demo:
	@$(MAKE) --no-print-directory VENV=$(VENV) $(VENV)/.cluster
	@$(VENV)/bin/gateway demo $(ARGS)
else
demo: $(VENV)/.run $(VENV)/.native
	@$(VENV)/bin/gateway demo $(ARGS)
endif

$(VENV)/spark-classes.jsa: $(VENV)/.test
	@echo "Starting Spark once, so that each test's Spark starts quickly (half a minute) …"
	@$(PY) tests/plugins/quick_java.py

# Each of five workers would compile all modules at the same time: most of a minute.
$(VENV)/.compiled: $(VENV)/.test
	@echo "Compiling the tests once (a quarter of a minute) …"
	@$(PYTEST) --collect-only -q > /dev/null && touch $@ || true # `test` says what is wrong

# Five for two cores: most of the time tests wait, for what they have killed or hold back.
WORKERS = -n 5 --dist worksteal
CHOSEN  = -m "not long"
test: $(VENV)/.test $(VENV)/.native
	@$(MAKE) --no-print-directory -j 2 $(VENV)/.compiled $(VENV)/spark-classes.jsa
	@$(PYTEST) $(WORKERS) $(CHOSEN) $(ARGS)

# All of what `test` has a sample of, and what it leaves out.
ONLY   ?= tests lowest
long: $(ONLY:%=long-%)

long-tests:
	@SEEDS=1000 STATES=all WEEKS=1 $(MAKE) --no-print-directory test CHOSEN=

# In each a week of Pravega's streams passes, or a crowd has one, with other chances.
long-weeks: $(VENV)/.test
	@WEEKS=20 $(PYTEST) -n 2 tests/protocols/pravega/controller/test_week.py \
		tests/protocols/pravega/controller/test_crowd.py $(ARGS)

# Filebeat's client before a spool and a disk that are full for minutes; beside each other: they wait.
long-pressure: $(VENV)/.test
	@PRESSURE=full $(PYTEST) -n 5 tests/integration/test_go_lumber.py $(ARGS)

# JSON and frames into the kernel in C, with sanitizers, for ten minutes each.
long-kernel: $(VENV)/.test native
	@NATIVE_SECONDS=600 $(PYTEST) -n 3 tests/fuzz/test_native.py --timeout=900 $(ARGS)

.venv-lowest/.done: $(VENV)/.test tests/plugins/lowest.py
	@echo "Installing the lowest $(LOWEST) (Spark is 450 MB) …"
	@$(PY) tests/plugins/lowest.py $(@D) $(LOWEST)
	@touch $@

.venv-lowest/spark-classes.jsa: .venv-lowest/.done
	@echo "Starting the lowest Spark once, so that each test's starts quickly (half a minute) …"
	@.venv-lowest/bin/python tests/plugins/quick_java.py

# First what pyarrow writes and Spark 4.1 reads, of the spool's tests those alone; then what
# has jars that fit no newer Spark.  tests/spark/commits/conftest.py lays each format's
# tests together: two workers begin with one each.
long-lowest: .venv-lowest/spark-classes.jsa
	@.venv-lowest/bin/python -m pytest -n 2 --dist worksteal tests/spark/test_tables.py \
		tests/spark/test_readers.py tests/spark/test_source.py tests/spark/test_job.py \
		tests/spark/test_job_checkpoint.py tests/spark/test_job_files.py \
		tests/store/spool/test_decoding.py tests/store/spool/test_decoding.py tests/store/spool/test_publisher.py \
		tests/store/spool/test_processes.py::test_the_file_is_the_one_that_the_daemon_would_write \
		tests/store/spool/test_processes.py::test_one_that_has_nothing_to_do_gives_its_memory_back \
		tests/protocols/pravega/test_history.py $(ARGS)
	@.venv-lowest/bin/python -m pytest -n 2 --dist worksteal tests/spark/commits \
		tests/integration/test_cluster.py tests/spark/test_kafka.py \
		tests/spark/test_consumer_of_bucket.py \
		tests/spark/test_lost_executors.py::test_killed_while_a_format_commits \
		tests/spark/test_lost_executors.py::test_killed_with_tables_by_rule $(ARGS)


# SEED=… replays one, and prints its history.
simulate: $(VENV)/.test
	@PYTHONPATH=tests/plugins $(PY) -m simulation

# WORDS=… only those whose file, name or tests have one of these in them; or its options.
mutants: $(VENV)/.test
	@$(PY) tests/mutants $(WORDS)

test-clients:
	@cd clients/js && npm install --no-save --no-package-lock --no-audit --no-fund --silent && npm test
	@mvn -f clients/java --batch-mode --no-transfer-progress verify $(ARGS)

check: $(VENV)/.check
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy

format: $(VENV)/.check
	@$(VENV)/bin/ruff format .
	@$(VENV)/bin/ruff check --fix .

bench: $(VENV)/.test
	@$(PY) bench/table.py $(ARGS)

# For Python 3.11, which later ones can install as well.
LOCK = $(VENV)/bin/uv pip compile --quiet --no-header --no-annotate --generate-hashes \
	--upgrade --python-version 3.11 --python-platform linux
lock: $(PY)
	@$(PY) -m pip install --quiet uv==0.13.9
	@printf '%s\n' hatchling setuptools wheel ziglang | $(LOCK) - -o requirements/build.txt
	@$(LOCK) pyproject.toml --extra s3 --extra jwt -o requirements/daemon.txt
	@$(LOCK) pyproject.toml --extra s3 --extra jwt --extra spark -c requirements/daemon.txt -o requirements/spark.txt
	@git diff --stat requirements

docs: $(VENV)/.test
	@NO_MKDOCS_2_WARNING=1 PYTHONPATH=$(CURDIR) $(VENV)/bin/mkdocs build --strict
	@echo "site/index.html; its search needs a server: $(PY) -m http.server -d site"

# ARGS=--final refuses what is not ready; ARGS=--spark installs and runs the job, too.
release: $(VENV)/.release
	@$(PY) release $(ARGS)

clean:
	rm -rf site dist $(VENV) .venv-lowest .venv-newest .venv-cluster clients/java/target clients/js/node_modules demo-data .pytest_cache .mypy_cache .ruff_cache .hypothesis
