# make demo    one run of the built-in oracle, from nothing to a score      make test    everything that CI runs
# make check   lint, types and the fast tests, before each commit           make clean   away with .venv and the caches

.PHONY: demo test check clean

demo:
	@scripts/setup demo
	@.venv/bin/arena run --problem paged_attention --hardware cpu

test:
	@scripts/setup test
	@scripts/check --all

check:
	@scripts/setup test
	@scripts/check

clean:
	@rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	@find arena problems harnesses tests -name __pycache__ -type d -prune -exec rm -rf {} +
