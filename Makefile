# Each target sets up first what it needs (local/setup.sh), which takes a moment once that is done.
setup = python=$$(BASH_ENV= bash local/setup.sh --dev) || exit 1;

.PHONY: test lint format lock

# A process per core, with a thread each; the tests of one file stay together, as they share fixtures.
test: lint
	@$(setup) OMP_NUM_THREADS=1 "$$python" -m pytest -q -n auto --maxprocesses 8 --dist loadfile $(ARGS)

lint:
	@$(setup) "$$python" -m ruff check . && "$$python" -m ruff format --check .

format:
	@$(setup) "$$python" -m ruff check --fix . && "$$python" -m ruff format .

# make lock ARGS=--upgrade takes newer versions, too.
lock:
	@BASH_ENV= bash local/lock.sh $(ARGS)
