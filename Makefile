# make demo            one run of the built-in oracle, from nothing to a score and its pages; results go to .cache/demo
# make demo-site       built-in agents on every problem on the CPU, timed in brief, and their pages: .cache/demonstration/site
# make test            lint, types and quick tests  make check   the same without tests that read a clock, before each commit
# make test-slow       tests of two seconds and more each, with Ray, which it installs
# make test-cli        the nine agent CLIs (3 GB from npm and PyPI) against a stub of their providers
# make test-site       the pages in Chromium
# make test-inspect    logs for Inspect, and the problems as its tasks, with inspect-ai, which it installs
# make test-problems   every problem check on the CPU; CI (.ci/run) runs all six tests and demo-site
# make clean           remove .venv and the caches

# Tests start arena hundreds of times, and pytest dozens of times: without compiled modules these starts take longer.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-site test test-slow test-cli test-site test-inspect test-problems check clean

demo:
	@scripts/setup demo
	@ARENA_HOME=.cache/demo .venv/bin/arena run --problem paged_attention --hardware cpu
	@ARENA_HOME=.cache/demo .venv/bin/arena site --runs all

demo-site:
	@scripts/setup demo
	@rm -rf .cache/demonstration
	@ARENA_HOME=.cache/demonstration .venv/bin/python scripts/demonstration.py
	@ARENA_HOME=.cache/demonstration .venv/bin/arena curve latest
	@ARENA_HOME=.cache/demonstration .venv/bin/arena site --runs all
	@grep -q 'id="curve"' .cache/demonstration/site/r/*climb*.html

test:
	@scripts/setup test
	@scripts/check --all

test-slow:
	@scripts/setup ray
	@scripts/check --slow

# 14 sessions at a time: most of the time they wait, for a provider that fails or for a limit.
test-cli:
	@scripts/setup cli
	@.venv/bin/arena install --all
	@.venv/bin/python -m pytest -q -ra -n 14 -m cli tests/agent_clis

test-site:
	@scripts/setup site
	@.venv/bin/python -m pytest -q -ra -m browser tests/site

test-inspect:
	@scripts/setup inspect
	@.venv/bin/python -m pytest -q -ra -n 3 tests/export

test-problems:
	@scripts/setup test
	@.venv/bin/arena check --all --hardware cpu

check:
	@scripts/setup test
	@scripts/check

clean:
	@rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	@find arena problems harnesses tests -name __pycache__ -type d -prune -exec rm -rf {} +
