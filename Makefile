# make demo    one run of the built-in oracle, from nothing to a score      make test    lint, types, tests
# make check   lint, types and the fast tests, before each commit           make clean   away with .venv and the caches
# make test-cli   the agents' own programs (1.4 GB from npm) against a stub of their providers
# make test-problems   every problem's gate on the processor
# make test-slow       tests that take more than ten seconds each; CI (.ci/run) runs all four

.PHONY: demo test test-slow test-cli test-problems check clean

demo:
	@scripts/setup demo
	@.venv/bin/arena run --problem paged_attention --hardware cpu

test:
	@scripts/setup test
	@scripts/check --all

test-slow:
	@scripts/setup test
	@scripts/check --slow

test-cli:
	@scripts/setup test
	@scripts/cli --all
	@.venv/bin/python -m pytest -q -ra -n auto -m cli tests/agent_clis

test-problems:
	@scripts/setup test
	@.venv/bin/arena check --all --hardware cpu

check:
	@scripts/setup test
	@scripts/check

clean:
	@rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	@find arena problems harnesses tests -name __pycache__ -type d -prune -exec rm -rf {} +
