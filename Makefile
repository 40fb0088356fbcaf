# Short names for the scripts; they make their own .venv and need nothing but Python 3.11.
.PHONY: try check test docs release soak bench format

try:     ## set up and run the embedded model on the embedded tasks
	@scripts/try

check:   ## set up, then format, lint, types, layers and tests: what CI runs
	@scripts/check

test: check

docs:    ## the documentation site, in site/
	@scripts/docs

release: ## wheels in dist/, tried in an empty environment, with the licences of what they bring
	@scripts/release

soak:    ## the long form of the fault tests, about a quarter of an hour; writes benchmarks/SOAK.md
	@scripts/soak

bench:   ## the peers' environments, every benchmark side by side, benchmarks/RESULTS.md; about 35 minutes
	@scripts/bench

format:  ## put in order what a machine can
	@scripts/format
