# Two commands on a fresh machine with Python 3.11, pip and make:
#   make demo   where does a real classifier look for a cat in a real photograph?
#   make test   lint, types and all tests
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Only files whose hashes are in locks/ are installed; `make demo LOCK=no` lets pip choose under constraints.txt instead.
LOCK    ?= yes
INSTALL := $(BIN)/python dev/install.py $(if $(filter no,$(LOCK)),--unlocked)
# Each worker goes through its own half and then helps the other: what a file of tests needs, such as the imports of the
# page or of ONNX, is made ready in one of them and not in both.
PYTEST ?= $(BIN)/pytest --numprocesses 2 --dist worksteal

# What was imported once is kept compiled: the tests start hundreds of processes, and torch alone takes 5 s otherwise.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo serve test lint types check house format docs compare pictures wheel check-wheel lock audit release-check clean help
help:            ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/'

$(VENV)/.demo: pyproject.toml constraints.txt dev/install.py locks/cpu.txt locks/demo.txt locks/cuda.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) demo
	touch $@

$(VENV)/.dev: $(VENV)/.demo locks/serve.txt locks/dev.txt
	$(INSTALL) dev
	touch $@

demo: $(VENV)/.demo  ## the main job, on the embedded classifier and a real photograph
	$(BIN)/python examples/demo.py

serve: $(VENV)/.serve  ## the page, in your browser
	$(BIN)/excite serve --open

$(VENV)/.serve: $(VENV)/.demo locks/serve.txt
	$(INSTALL) serve
	touch $@

# mypy takes a minute and one processor: the tests begin beside it
test: lint  ## lint, types and all tests
	$(MAKE) --jobs 2 types check

lint: $(VENV)/.dev  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev  ## mypy, strict
	$(BIN)/mypy

check: $(VENV)/.dev  ## the tests
	$(PYTEST)

house: $(VENV)/.dev  ## how large the package is, beside its limits
	$(BIN)/pytest -q -s tests/test_layout.py -k limits

format: $(VENV)/.dev  ## let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev  ## the documentation, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

compare: $(VENV)/.dev  ## is what docs/comparison.md says of other packages still so?
	$(BIN)/python dev/compare_peers.py --check

pictures: $(VENV)/.dev  ## draw the pictures of the README and the docs again
	$(BIN)/python dev/readme_picture.py
	$(BIN)/python dev/theory_figures.py
	$(BIN)/python dev/page_picture.py

wheel: $(VENV)/.demo  ## build the package: a wheel and an sdist, into dist/
	$(BIN)/python -m hatchling build

check-wheel: $(VENV)/.demo  ## install the wheel and the sdist in empty environments, and run the demo there
	$(BIN)/python dev/check_wheel.py --out docs/trust/supply.json

lock: $(VENV)/.tools/done  ## choose versions with uv, and write their hashes into locks/ (UPGRADE=yes: the newest)
	$(VENV)/.tools/bin/python dev/lock.py $(if $(filter yes,$(UPGRADE)),--upgrade)

audit: $(VENV)/.tools/done  ## are there known faults in what is locked? (asks the net)
	$(VENV)/.tools/bin/python dev/audit.py

$(VENV)/.tools/done: locks/tools.txt
	test -x $(VENV)/.tools/bin/python || $(PYTHON) -m venv $(VENV)/.tools
	$(VENV)/.tools/bin/python -m pip install --quiet --require-hashes --no-deps --only-binary :all: -r locks/tools.txt
	touch $@

release-check: $(VENV)/.dev  ## what MAINTAINING.md can have checked by a machine, but for the tests
	$(BIN)/python dev/release_check.py

clean:           ## forget the environment and what was built
	rm -rf $(VENV) dist build site .mypy_cache .ruff_cache .pytest_cache
