# Run these as root, on a release that docs/releases.md lists:
#
#   make demo         the VMware LBT benchmark on a real switch (ARGS=--faithful for 75 %/30 s)
#   make bench        every benchmark layout with every policy and every peer, as often as for docs/benchmarks.md,
#                     in about ten hours; reports list differences from it (ARGS=--quick checks in minutes that it works)
#   make bench-scale  the cost of 1 to 300 bridges on one service, failovers included (ARGS='--bridges 1 10 100')
#   make bench-replay  how long ovs-lbt replay takes for 64 VM ports, and for a part of them with every poll
#                     (ARGS='--trace FILE --out FILE')
#   make bench-times  durations and losses on a real switch, compared with the limits in the documents, in
#                     out/times.json; run nothing else on the machine
#   make test         lint, and the tests with and without real switches, one of them on the kernel's datapath:
#                     12 minutes on two cores (WORKERS=1: one switch test after another)
#   make test-quick   the tests that need no switch and no other program, in a minute, as any user; it installs
#                     nothing, and needs .venv or a python3 with `pip install -e '.[dev]'`
#   make test-all     everything, in 5.9 hours; it continues where it stopped (ARGS="--steps kernel switch/attach")
#   make test-ryu     the most important switch tests, on stock Ryu instead of os-ken
#   make test-fresh   the commands of README in minimal roots of Debian and Ubuntu, in out/fresh/
#                     (ARGS="--release trixie --steps attach"; the first run downloads the releases)
#   make test-ovs     OVS=DIR: the most important switch tests, on the Open vSwitch that is installed
#                     under DIR, in out/ovs/
#   make test-kernel  the most important switch tests, on the kernel's datapath, in out/kernel/, in at most
#                     60 minutes; in QEMU if this machine's kernel has no module openvswitch
#   make fuzz         malformed input for every parser of external data, guided by code coverage, ten minutes for
#                     each parser, in out/fuzz/ (ARGS="--seconds N --target NAME"; ARGS=--keep stores inputs that reached new code)
#   make soak         random events on a real switch until a check fails, for hours
#                     (SEED=1 SEEDS=3 JOBS=3 EVENTS=500; ARGS='--replay FILE')
#   make deb          the Debian package, out/deb/ovs-lbt_VERSION_all.deb; it needs no Open vSwitch and no .venv
#   make dashboards   the dashboards' JSON, generated from the Python files in dashboards/
#
# Each target first installs what it needs, which takes little time if everything is installed.

SHELL := /bin/bash
BIN := .venv/bin
PACKAGES := controller policies topologies dashboards
ARGS ?=
PYTEST_ARGS ?=
# As in VMware's document: manual placement, a colliding hash, and load-based placement.
DEMO ?= --policy originating-port load-based --against manual --scenario "web users"
# These need the CPU: one worker for each core.
COMPUTE := tests/unit tests/wire
# These mostly wait; each worker has its own Open vSwitch and namespaces. Files with many tests come first.
SWITCHES := tests/mininet tests/switch
WORKERS ?= $(shell echo $$((4 * $$(nproc))))

# The seeds use plain uplinks, a bond and LACP in turn.
SEED ?= 1
SEEDS ?= 3
EVENTS ?= 500
# The number of seeds that run at the same time.
JOBS ?= 1

# Attach, delivery, failover and reconnects send every type of message in both directions. Moves by
# load need timely polls and decisions, and path checks need timely probes. Faults: no part fails
# unnoticed, although threads are green.
RYU ?= tests/switch/test_attach.py tests/switch/test_delivery.py \
	tests/switch/test_failover.py tests/switch/test_reconnect.py tests/switch/test_standby.py \
	tests/switch/test_load_based.py tests/switch/test_faults.py \
	tests/switch/test_path_check.py::test_a_port_that_is_blocked_in_any_direction_is_left \
	tests/switch/test_path_check.py::test_of_two_uplinks_a_host_decides_as_soon \
	tests/switch/test_path_check.py::test_an_mtu_that_one_switch_port_lacks_is_found

# Without compiled modules, each of the thousands of processes that tests start takes up to twice as long.
unexport PYTHONDONTWRITEBYTECODE

# The targets share one machine and one switch.
.NOTPARALLEL:
.PHONY: help setup setup-kernel demo bench bench-cached bench-new-connections bench-translation bench-database bench-failovers bench-overlay bench-paths bench-quiet-paths bench-replay bench-scale bench-set-up bench-times test test-all test-quick test-ryu test-fresh bench-provider \
	test-ovs test-kernel atheris fuzz soak dashboards deb wheels lint format \
	clean

help:
	@sed -n '/^#/!q;s/^# \{0,1\}//p' Makefile

setup:
	@.ci/setup

setup-kernel:
	@.ci/setup kernel

demo:
	@.ci/setup demo
	$(BIN)/ovs-lbt bench vmware_lbt $(DEMO) $(ARGS)

bench: setup
	$(BIN)/ovs-lbt bench --all --repeat campaign $(ARGS)

bench-times: setup
	$(BIN)/python -m pytest -m times --figures out/times.json $(SWITCHES) $(PYTEST_ARGS)

bench-replay: setup
	$(BIN)/python -m tests.unit.controller.replay.bench $(ARGS)

# Other commands replace these targets, and measure the same or the most similar figures.
bench-cached: INSTEAD = ovs-lbt bench connections
bench-database: INSTEAD = make soak
bench-failovers: INSTEAD = make bench-scale ARGS='--bridges 300'
bench-new-connections bench-set-up bench-translation: INSTEAD = ovs-lbt bench connections --rates 1000 10000
bench-overlay: INSTEAD = python -m pytest --figures FILE tests/switch/test_ovn_overlays.py
bench-paths: INSTEAD = ovs-lbt bench converged
bench-provider: INSTEAD = python -m pytest tests/switch/test_ovn_provider.py
bench-quiet-paths: INSTEAD = python -m pytest tests/switch/test_path_quiet.py
bench-cached bench-database bench-failovers bench-new-connections bench-overlay bench-paths bench-provider bench-quiet-paths bench-set-up bench-translation:
	@echo "$@ no longer exists; run: $(INSTEAD)" >&2; exit 2

bench-scale: setup
	$(BIN)/ovs-lbt bench scale $(ARGS)

# The kernel's part takes one core for minutes, so it runs next to lint and the first tests. It ends before the
# tests with real switches begin, because these measure times. A part that fails does not end the others, unless it
# is lint, or pytest was interrupted or could not start (2). With -k, a run may have no test (5). Tests that need the
# CPU share little, so an idle worker takes over tests of another worker. Tests of a file on a switch share that switch.
test: setup-kernel
	@mkdir -p out; log=out/kernel-short.log; kernel=0; compute=0; switches=0; \
	$(BIN)/python -m tests.releases kernel --short --out out/kernel-short >$$log 2>&1 & guest=$$!; \
	trap "kill $$guest 2>/dev/null" EXIT; \
	make --no-print-directory lint || exit; \
	$(BIN)/python -m pytest -n $$(nproc) --dist worksteal --hypothesis-profile test -m "not thorough" \
		$(COMPUTE) $(PYTEST_ARGS) || compute=$$?; \
	[[ $$compute != 2 ]] || exit 2; \
	wait $$guest || kernel=$$?; cat $$log; \
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --hypothesis-profile test \
		-m "not thorough" $(SWITCHES) $(PYTEST_ARGS) || switches=$$?; \
	[[ $$kernel == 0 && $$compute$$switches =~ ^(00|05|50)$$ ]] || { \
		echo "make test failed: status $$compute of $(COMPUTE), $$switches of $(SWITCHES), $$kernel of $$log" >&2; \
		exit 1; }

# These run in any environment that has the packages of setup.cfg's extra `dev`.
test-quick: PYTHON := $(or $(wildcard $(BIN)/python),python3)
test-quick:
	@$(PYTHON) -m pytest -n $$(nproc) --dist worksteal -m "not slow and not system and not thorough" --hypothesis-profile quick $(COMPUTE) $(PYTEST_ARGS); \
	status=$$?; \
	echo "not covered: real switches (make test), lint (make lint)"; \
	exit $$status

test-all: setup-kernel wheels atheris
	@type -P debootstrap >/dev/null || apt-get -q -y install --no-install-recommends debootstrap
	$(BIN)/python -m tests.releases all $(ARGS)

test-ryu:
	@.ci/setup ryu
	OVS_LBT_FRAMEWORK=ryu .venv-ryu/bin/python -m pytest tests/wire tests/unit/controller/openflow $(PYTEST_ARGS)
	OVS_LBT_FRAMEWORK=ryu .venv-ryu/bin/python -m pytest $(RYU) $(PYTEST_ARGS)

# This needs only debootstrap from the machine, so it has no set-up.
test-fresh:
	/usr/bin/python3 -m tests.releases fresh $(ARGS)

test-ovs: setup
	@[[ -n "$(OVS)" ]] || { echo "OVS is not set; name an Open vSwitch's prefix: make test-ovs OVS=DIR" >&2; exit 2; }
	$(BIN)/python -m tests.releases ovs "$(OVS)" $(ARGS)

test-kernel: setup-kernel
	$(BIN)/python -m tests.releases kernel $(ARGS)

# 130 MB, which only fuzzing needs. If it has no wheel for this machine, inputs are random.
atheris: setup
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/python -m pip install --quiet --only-binary atheris --editable '.[fuzz]' || true

fuzz: atheris
	$(BIN)/python -m tests.unit.fuzz $(ARGS)

soak: setup
	$(BIN)/python -m tests.switch.chaos.soak --seed $(SEED) --seeds $(SEEDS) --jobs $(JOBS) --events $(EVENTS) $(ARGS)

# `wheels` only downloads, because the package's tests have no network.
deb wheels:
	@.ci/setup deb
	@controller/debian/build $(filter wheels,$@)

dashboards: setup
	$(BIN)/python -m dashboards.generate

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers $$(nproc) $(PACKAGES) tests
	$(BIN)/lint-imports
	$(BIN)/python -m tests.plain_words
	$(BIN)/python -m tests.advisories
	cd controller/ansible && PATH="$(abspath $(BIN)):$$PATH" ansible-lint --offline --profile production

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# This keeps /usr/local/bin/ovs-lbt: `make setup` links it to the checkout that ran last, unless the package is installed.
clean:
	rm -rf .venv .venv-ryu out build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
