# Short names for the scripts. They create their own environment and need only Python 3.11 or newer.
.PHONY: try check fast test docs release soak bench format

try:     ## run the embedded model on the quickstart tasks
	@scripts/try

check:   ## check format, lint, types and import layers, and run all tests
	@scripts/check

fast:    ## run the fast tests only
	@scripts/check --fast

test: check

docs:    ## build the documentation site into site/
	@scripts/docs

release: ## build wheels into dist/, try them in an empty environment, list licences
	@scripts/release

soak:    ## run the long fault tests (about 50 minutes) and write benchmarks/SOAK.md
	@scripts/soak

bench:   ## run all benchmarks beside lm_eval and lmms_eval (about an hour)
	@scripts/bench

format:  ## fix formatting, import order, simple lint errors and generated pages
	@scripts/format
