.PHONY: help demo demo-servers test simulate faults fuzz soak lint doc clean
.DEFAULT_GOAL := help

CARGO ?= cargo
# Most tests wait for servers and due times, so more run at a time than there are cores.
TEST_THREADS ?= $(shell n=$$((4 * $$(nproc))); echo $$((n < 16 ? n : 16)))

# What counts seconds under a load of its own runs after the others, one test at a time.
ALONE = random_operations::

help: ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## see it work: an auction closes on time; needs no server
	$(CARGO) run --locked --release --package auction --features demo --bin auction

demo-servers: ## see it work on a private Redis and MySQL: an auction closes on time
	@scripts/install-servers
	$(CARGO) run --locked --release --package auction --features demo-servers --bin auction-servers

test: ## every test, doc tests too
	@scripts/install-servers --tests
	@notes=$$(mktemp) && status=0 && { \
		set -x; export LAPSED_TEST_NOT_TRIED=$$notes; \
		RUST_TEST_THREADS=$(TEST_THREADS) \
			$(CARGO) test --locked --workspace --exclude lapsed-simulator --features lapsed-cli/otel -- --skip $(ALONE) || status=$$?; \
		$(CARGO) test --locked --profile simulator --package lapsed-simulator || status=$$?; \
		RUST_TEST_THREADS=1 \
			$(CARGO) test --locked --workspace --exclude lapsed-simulator --features lapsed-cli/otel --test servers -- $(ALONE) || status=$$?; } && \
		cat $$notes && rm -f $$notes && exit $$status

simulate: ## new seeds of the simulator for SIMULATE_SECONDS (3600), on virtual time
	$(CARGO) run --locked --release --package lapsed-simulator -- seeds 1000000000 --seconds $${SIMULATE_SECONDS:-3600}

fuzz: ## new inputs for each fuzz target, for FUZZ_SECONDS (60) each
	@scripts/fuzz

faults: ## daemons on real servers under load and faults for FAULTS_SECONDS (900); SEED replays
	@scripts/install-servers
	$(CARGO) build --locked --release --package lapsed-cli --package lapsed-faults
	target/release/faults --seconds $${FAULTS_SECONDS:-900}

soak: ## the promises in milliseconds, then random tests with new seeds for SOAK_MINUTES (20)
	@scripts/install-servers
	@scripts/soak

lint: ## formatting, clippy, features, doc warnings, licences and banned crates
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets --all-features -- -D warnings
	@scripts/check-features
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --locked --workspace --all-features
	@if $(CARGO) deny --version >/dev/null 2>&1; then \
		echo "$(CARGO) deny --offline check bans licenses sources"; \
		$(CARGO) deny --offline check bans licenses sources; \
	else \
		echo "lint: cargo-deny is not installed; licences, bans and sources were not checked"; \
	fi

doc: ## the API documentation, in target/doc
	$(CARGO) doc --no-deps --locked --workspace --all-features

clean: ## remove target/
	$(CARGO) clean
