# make setup   the environment in .venv      make demo   a drafter and a verifier on this machine
# make test    the whole test suite          make lint   formatting, lints, types

.PHONY: setup demo test lint

setup:
	@scripts/setup

demo: setup
	@.venv/bin/python -m examples.demo

test:
	@scripts/setup requirements-dev.txt
	@.venv/bin/python -m pytest

lint:
	@scripts/setup requirements-dev.txt
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy
