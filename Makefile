# make setup   the environment in .venv      make demo   a drafter and a verifier on this machine
# make lab     adds what measures: drafter bench, drafter report, specpair simulator, the benchmarks
# make test    the tests, in minutes         make lint   formatting, lints, types, prose
# make test-slow    the long tests: the model pair in every mode, virtual time, terminals; and those of properties with
#                   many examples
# make faults   kills, cuts, full disks and other faults, in virtual time and with real processes: each text has to be
#                   the target's own (docs/promises.md). FAULTS="--seeds 10000 --minutes 10" runs more of it
# make docs    the documentation as a site, in build/site
# make test-torch   installs PyTorch, and runs the tests that need it; make test-mlx, the same for MLX
# make test-browser  installs Playwright, and runs the pages of both services and of reports in Chromium, which has to be there
# make test-tnx     runs the neuron_legacy backend on the library's source, interpreted: TNX_SRC names it (CONTRIBUTING.md)
# make test-real    real models in every mode, both ends: REAL_MODELS names their folder (CONTRIBUTING.md)
# make test-sglang  our side of SGLang's interface, on its source: SGLANG_SRC names it (CONTRIBUTING.md)
# make test-vllm   the verifier over vLLM, in an environment of its own, .venv-vllm
# make test-ray    replicas on Ray Serve, in an environment of its own, .venv-ray
# make test-ranges   the services with the oldest and the newest versions that pyproject.toml allows, and with vLLM's
# make test-deploy   what is deployed on Kubernetes, in an environment of its own, .venv-deploy (CONTRIBUTING.md)
# make coverage     the branches of specpair/speculation that its tests take: at least 95 %
# make dist    builds the sdist and the wheel, installs the wheel elsewhere and compares its text with this checkout's

.PHONY: setup lab demo test test-slow faults test-torch test-mlx test-browser test-tnx test-vllm test-sglang test-ray test-deploy test-ranges test-real lint coverage dist docs

# Tests start many processes and collect many files: to compile the modules anew in each takes a tenth of the time.
unexport PYTHONDONTWRITEBYTECODE

setup:
	@scripts/setup

lab:
	@scripts/setup requirements/lab.txt

demo: setup
	@.venv/bin/python -m examples.demo

test:
	@scripts/setup requirements/dev.txt
	@.venv/bin/python -m pytest -n logical --dist worksteal -m "not slow"

test-slow:
	@scripts/setup requirements/dev.txt
	@.venv/bin/python -m pytest -n logical --dist worksteal -m "slow or property" --hypothesis-profile many

faults:
	@scripts/setup requirements/dev.txt
	@.venv/bin/python -m lab.benchmarks.faults $(FAULTS)

test-torch:
	@scripts/setup requirements/dev.txt
	@scripts/setup requirements/torch.txt
	@.venv/bin/python -m pytest -n logical --dist worksteal --engine torch

test-mlx:
	@scripts/setup requirements/dev.txt
	@scripts/setup requirements/mlx.txt
	@.venv/bin/python -m pytest --engine mlx

test-browser:
	@scripts/setup requirements/dev.txt
	@.venv/bin/pip install --quiet --disable-pip-version-check -r requirements/browser.txt
	@.venv/bin/python -m pytest --engine browser tests/drafter_client/serve tests/lab/report tests/verifier_server/api/test_page.py

test-tnx:
	@test -d "$(TNX_SRC)/transformers_neuronx" || \
		{ echo "test-tnx: TNX_SRC is '$(TNX_SRC)', expected is the folder src of transformers-neuronx: see CONTRIBUTING.md" >&2; exit 1; }
	@scripts/setup requirements/dev.txt
	@scripts/setup requirements/torch.txt
	@TNX_SRC="$(abspath $(TNX_SRC))" .venv/bin/python -m pytest -n logical --dist worksteal --engine tnx

# vLLM is not installed beside the others: requirements/vllm.txt says why.
test-vllm:
	@test -x .venv-vllm/bin/pip || $(or $(PYTHON),python3) -m venv .venv-vllm
	@.venv-vllm/bin/pip install --quiet --disable-pip-version-check -r requirements/vllm.txt
	@.venv-vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@VLLM_CPU_KVCACHE_SPACE=1 .venv-vllm/bin/python -m pytest --engine vllm tests/verifier_server/engine/vllm

test-sglang:
	@test -d "$(SGLANG_SRC)/sglang/srt" || \
		{ echo "test-sglang: SGLANG_SRC is '$(SGLANG_SRC)', expected is the folder of an unpacked wheel: see CONTRIBUTING.md" >&2; exit 1; }
	@scripts/setup requirements/dev.txt
	@.venv/bin/pip install --quiet --disable-pip-version-check msgspec==0.22.0
	@SGLANG_SRC="$(abspath $(SGLANG_SRC))" .venv/bin/python -m pytest --engine sglang tests/verifier_server/engine/sglang

REAL_MODELS ?= .cache/real_models
test-real:
	@scripts/setup requirements/dev.txt
	@REAL_MODELS="$(abspath $(REAL_MODELS))" .venv/bin/python -m pytest --engine real

test-ray:
	@test -x .venv-ray/bin/pip || $(or $(PYTHON),python3) -m venv .venv-ray
	@.venv-ray/bin/pip install --quiet --disable-pip-version-check -r requirements/ray.txt
	@.venv-ray/bin/python -m pytest --engine ray tests/deploy

test-deploy:
	@test -x .venv-deploy/bin/pip || $(or $(PYTHON),python3) -m venv .venv-deploy
	@.venv-deploy/bin/pip install --quiet --disable-pip-version-check -r requirements/deploy.txt
	@.venv-deploy/bin/python -m pytest --engine deploy tests/deploy

# With few examples, and without the tests that take longest under coverage: `make test` runs all of them, and what they
# add to the branches taken is little.
coverage:
	@scripts/setup requirements/dev.txt
	@.venv/bin/python -m pytest -n logical --dist worksteal -m "not slow" tests/specpair/speculation --hypothesis-profile few \
		--ignore-glob "*/test_controller_*.py" --ignore-glob "*/test_top_logits_*.py" \
		--ignore-glob "*_exact.py" --ignore-glob "*_statistics.py" \
		--cov specpair/speculation --cov-branch --cov-report term:skip-covered --cov-fail-under 95

test-ranges:
	@scripts/setup requirements/dev.txt
	@.venv/bin/python -m scripts.version_ranges

lint:
	@scripts/setup requirements/dev.txt
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@.venv/bin/python -m pytest -q tests/test_prose.py

# Not --quiet: then MkDocs does not count its warnings, and a broken link passes.
docs:
	@scripts/setup requirements/docs.txt
	@NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build
	@echo "docs: build/site/index.html"

dist:
	@scripts/setup requirements/dev.txt
	@.venv/bin/python scripts/release_check.py
