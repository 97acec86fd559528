# kilter: build, demo, test, bench. `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Debian packages: what building needs, what the demo needs, what the tests need, what guests need.
BUILD_PACKAGES := gcc libc6-dev python3-venv
# For the HRRN scheduler (feature `sched`); without them everything else is built.
SCHED_PACKAGES := clang-19 libelf-dev zlib1g-dev make pkg-config
DEMO_PACKAGES := linux-perf
TEST_PACKAGES := chromium linux-perf mksh rt-tests shellcheck strace stress-ng sudo sysbench toybox
VM_PACKAGES := busybox-static debian-archive-keyring file kmod libcap-ng-dev libseccomp-dev qemu-system-x86 strace udev zstd
BENCH_PACKAGES := cgroup-tools hyperfine rt-tests strace tuned

# Serves this machine's files to guests, which run twice as fast with it; Debian 12 has none.
VIRTIOFSD := 1.14.0

# Tests send signals: one that is ignored here (nohup, a shell's background) would never arrive.
SIGNALS := env --default-signal=HUP,INT,QUIT,TERM

SOURCES := $(shell git ls-files -co --exclude-standard Cargo.toml Cargo.lock .cargo crates catalog lab/kilter_lab pyproject.toml)

# What cargo is told of the HRRN scheduler. Clang is looked for by the build itself, which warns.
define features
$$(if [ -e /usr/include/gelf.h ] && [ -e /usr/include/zlib.h ] && ls /usr/lib*/libelf.a /usr/lib/*/libelf.a 2> /dev/null | grep -q .; \
	then echo "--features $(1)"; \
	else echo "warning: kilter is built without the HRRN scheduler: libelf or zlib for development is missing ($(SCHED_PACKAGES))" >&2; fi)
endef

.PHONY: help build demo fuzz test test-rust test-python test-vm bench bench-sched bench-article clean need-root
.PHONY: packages-build packages-demo packages-test packages-vm packages-bench packages-sched install-sched

help:
	@echo "make demo          build kilter, tune a real workload on this machine, put everything back (root)"
	@echo "make test          build kilter and run every test (root for the tests on the real kernel)"
	@echo "make test-vm       boot kernels from Debian's suites and run the tests that need root inside"
	@echo "make bench         measure kilter beside its peers (root)"
	@echo "make build         build kilter into $(VENV)"
	@echo "make bench-sched   measure the HRRN scheduler against its bars in a booted kernel"
	@echo "make bench-article an article's search of CFS's parameters and kilter's, in a booted kernel"
	@echo "make fuzz          ten minutes of mutated profiles, catalogs, TuneD files and journals"
	@echo "make clean         remove what was built"

# Installs what is missing, and says so; asks apt for nothing otherwise.
define install
	@missing=""; for package in $(1); do \
		dpkg-query -W -f='$${Status}' $$package 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$package"; \
	done; \
	if [ -n "$$missing" ]; then \
		[ "$$(id -u)" = 0 ] || { echo "error: these Debian packages are missing:$$missing" >&2; echo "hint: sudo apt-get install -y$$missing" >&2; exit 1; }; \
		echo "Installing Debian packages:$$missing"; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing > /dev/null; \
	fi
endef

packages-build:
	$(call install,$(BUILD_PACKAGES))
packages-sched:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		$(MAKE) --no-print-directory install-sched || echo "warning: going on without the HRRN scheduler" >&2; fi
install-sched:
	$(call install,$(SCHED_PACKAGES))
packages-demo:
	$(call install,$(BUILD_PACKAGES) $(DEMO_PACKAGES))
packages-test:
	$(call install,$(BUILD_PACKAGES) $(TEST_PACKAGES))
packages-vm:
	$(call install,$(BUILD_PACKAGES) $(VM_PACKAGES))
packages-bench:
	$(call install,$(BUILD_PACKAGES) $(BENCH_PACKAGES))

$(VENV)/.requirements: lab/requirements.txt
	@echo "Installing Python packages into $(VENV): $$(grep -oE '^[a-zA-Z0-9_.-]+==' lab/requirements.txt | tr -d '=' | tr '\n' ' ')"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r lab/requirements.txt
	@touch $@

# The wheel that users install: the binary and the Python package together.
$(VENV)/.kilter: $(VENV)/.requirements $(SOURCES) | packages-sched
	@command -v cargo > /dev/null || { echo "error: Rust is missing (cargo is not on the path)" >&2; exit 1; }
	@echo "Building kilter (Rust, release)"
	@rm -rf dist && $(BIN)/maturin build --quiet --release --locked --out dist $(call features,sched)
	@$(BIN)/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps dist/kilter-*.whl
	@touch $@

build: packages-build $(VENV)/.kilter

need-root:
	@[ "$$(id -u)" = 0 ] || { echo "make demo needs root: it tries kernel settings and puts them back (sudo make demo)"; exit 1; }

demo: need-root packages-demo $(VENV)/.kilter
	@bench/demo.sh $(BIN)/kilter

test: packages-test $(VENV)/.kilter test-rust test-python

test-rust: | packages-sched
	cargo fmt --check
	cargo clippy --locked --workspace --all-targets --quiet $(call features,kilter/sched) -- -D warnings
	$(SIGNALS) cargo test --locked --workspace --quiet $(call features,kilter/sched)

fuzz:
	KILTER_FUZZ_SECONDS=600 KILTER_FUZZ_SEED=$$(date +%s) cargo test --locked --release -p kilter-knobs --test fuzz -- --nocapture

test-python: $(VENV)/.kilter
	$(BIN)/ruff check lab bench tests
	$(BIN)/ruff format --check lab bench tests
	$(BIN)/mypy
	$(SIGNALS) $(BIN)/pytest -q -n 2 --dist loadgroup --durations=15

$(VENV)/.requirements-vm: tests/vm/requirements.txt $(VENV)/.requirements
	@echo "Installing Python packages into $(VENV): virtme-ng"
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r tests/vm/requirements.txt
	@echo "Building virtiofsd $(VIRTIOFSD) into $(VENV)"
	@cargo install --quiet --locked virtiofsd --version $(VIRTIOFSD) --root $(VENV) \
		|| echo "warning: virtiofsd cannot be built: guests will be slower" >&2
	@touch $@

test-vm: packages-vm $(VENV)/.kilter $(VENV)/.requirements-vm
	@PYTHONPATH=tests $(BIN)/python -m vm.kernels
	$(SIGNALS) $(BIN)/pytest -q -n 2 --dist loadscope --durations=15 tests/vm

bench: need-root packages-bench $(VENV)/.kilter
	@bench/run.sh $(BIN)/kilter

bench-sched: packages-vm packages-test $(VENV)/.kilter $(VENV)/.requirements-vm
	@PYTHONPATH=tests $(BIN)/python -m vm.kernels
	@$(BIN)/python bench/sched/hrrn.py $(BIN)/kilter

bench-article: packages-vm packages-test $(VENV)/.kilter $(VENV)/.requirements-vm
	@PYTHONPATH=tests $(BIN)/python -m vm.kernels
	@$(BIN)/python bench/article/article.py $(BIN)/kilter

clean:
	rm -rf target dist $(VENV)
