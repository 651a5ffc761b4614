# make demo    one run of the built-in oracle, from nothing to a score      make test    everything that CI runs
# make check   lint, types and the fast tests, before each commit           make clean   away with .venv and the caches
# make test-cli   the agents' own programs (1.4 GB from npm) against a stub of their providers

.PHONY: demo test test-cli check clean

demo:
	@scripts/setup demo
	@.venv/bin/arena run --problem paged_attention --hardware cpu

test:
	@scripts/setup test
	@scripts/check --all

test-cli:
	@scripts/setup test
	@scripts/cli --all
	@.venv/bin/python -m pytest -q -ra -n auto -m cli tests/cli

check:
	@scripts/setup test
	@scripts/check

clean:
	@rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	@find arena problems harnesses tests -name __pycache__ -type d -prune -exec rm -rf {} +
