# The first call of a target creates .venv and installs what the target needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
BENCH := $(VENV)/.bench
EXTRAS := $(VENV)/.extras
DOCS := $(VENV)/.docs

.PHONY: demo pictures test test-slow test-federation test-browser test-extras lint bench results docs clean

demo: $(INSTALLED)
	$(BIN)/fedcap demo

pictures: demo
	$(BIN)/python docs/pictures.py

test: $(INSTALLED)
	$(BIN)/python -m pytest -n auto --dist loadfile

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -m slow -o cache_dir=.pytest_cache/slow $(AGAIN)
	$(BIN)/python -m pytest --client-states=file -o cache_dir=.pytest_cache/file $(AGAIN) \
	    tests/test_client_store.py tests/test_resume.py tests/test_simulation.py tests/test_methods.py tests/test_scale.py

test-federation: $(INSTALLED)
	$(BIN)/python -m pytest -m federation -rs $(AGAIN)

test-browser: $(INSTALLED)
	$(BIN)/python -m pytest -m browser -rs $(AGAIN)

test-extras: $(EXTRAS)
	$(BIN)/python -m pytest -m 'slow or not slow' tests/test_ray.py tests/test_ray_task.py tests/test_searches.py \
	    tests/test_tracker_libraries.py tests/test_onnx.py tests/test_hugging_face.py

lint: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

results: $(INSTALLED)
	$(BIN)/python -m reproduction write
	$(BIN)/python -m docs.computed

docs: $(DOCS)
	$(BIN)/python -m docs

bench: $(BENCH)
	$(BIN)/python -m benchmarks all

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedcap needs Python 3.11 or newer: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,flower]'
	touch $@

$(BENCH): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,flower,ray]'
	touch $@

$(EXTRAS): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,ray,optuna,tensorboard,mlflow,onnx,huggingface]'
	touch $@

$(DOCS): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
	touch $@

clean:
	rm -rf $(VENV) build/docs site fedcap-demo
