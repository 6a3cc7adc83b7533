# Each target sets up first what it needs (local/setup.sh), which takes a moment once that is done.
setup = python=$$(bash local/setup.sh --dev) || exit 1;

.PHONY: test lint format lock

test: lint
	@$(setup) "$$python" -m pytest -q

lint:
	@$(setup) "$$python" -m ruff check . && "$$python" -m ruff format --check .

format:
	@$(setup) "$$python" -m ruff check --fix . && "$$python" -m ruff format .

# make lock ARGS=--upgrade takes newer versions, too.
lock:
	@bash local/lock.sh $(ARGS)
