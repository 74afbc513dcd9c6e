# Each command sets up its own virtual environment. It needs Python 3.11 or newer and a C compiler.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := setup.py pyproject.toml $(shell find codegen micrograd csrc -name '*.py' -o -name '*.h') weights/mnist.safetensors
ARGS ?=

# The tests start hundreds of Pythons, which would each compile the sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: train test test-slow lint docs site bench functions fuzz fuzz-compiler faults memory cross cross-wheels pythons wheel clean

# Trains on handwritten digits: make train ARGS="--epochs 3 --batch-size 10"
train: $(VENV)/train.stamp
	$(BIN)/micrograd train $(ARGS)

# NumPy's threads wait in a loop for work that small arrays never give them.
test test-slow fuzz-compiler faults memory: export OPENBLAS_NUM_THREADS = 1

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -q -n auto --dist worksteal $(ARGS)

# The tests that take minutes: a 118,000-parameter model, sanitizers, other compilers, accuracy after ten epochs. With
# ARGS="-m nightly" those of which it takes fewer cases.
test-slow: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -q -m "slow and not nightly" -n auto --dist worksteal $(ARGS)

# libFuzzer against everything that takes input, on Linux, with clang: six targets, 20 s each. For one target, or longer:
# make fuzz ARGS="idx --seconds 3600"
fuzz: ARGS = all --seconds 20
fuzz: $(VENV)/fuzz.stamp
	$(BIN)/python -m tools.fuzz $(ARGS)

# The suite under a memory checker, tens of minutes: make memory ARGS=asan, valgrind, debug or leaks
memory: ARGS = asan
memory: $(VENV)/dev.stamp
	$(BIN)/python -m tools.memory $(ARGS)

# Style and types of the code, and that planted faults can still be planted; the schemas of everything that GitHub and
# package indexes read. Needs no network.
lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -n0 tests/test_faults.py -k present_sources
	$(BIN)/validate-pyproject pyproject.toml
	$(BIN)/zizmor --quiet --offline --persona auditor .github
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/question.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff

# Runs every example in the documentation, and rebuilds its listings, tables and pictures. make docs ARGS=--check only
# compares. Pictures need Graphviz.
docs: $(VENV)/docs.stamp
	$(BIN)/python docs/build.py $(ARGS)

# The documentation as a site, build/site/index.html, which needs no network, with a reference from the docstrings. A link
# to a page, heading or file that does not exist is an error; build/external_links.txt lists the links to elsewhere.
site: $(VENV)/site.stamp
	$(BIN)/sphinx-build --quiet --fail-on-warning --fresh-env --conf-dir docs --doctree-dir build/doctrees . build/site $(ARGS)

# Compares this module with PyTorch, JAX, ONNX Runtime, scikit-learn and NumPy, in an environment of their own: an hour.
# Parts of it: make bench ARGS="--sections small --models LSTM GRU", ARGS="--sections batches", ARGS=--quick, which takes
# some minutes.
bench: $(VENV)-bench/bench.stamp
	$(VENV)-bench/bin/python -m benchmarks --output benchmarks $(ARGS)

# The elementary functions: derives their constants again. make functions ARGS=errors measures a million arguments of
# each, ARGS=float32 all 2**32, ARGS=speed nanoseconds.
functions: ARGS = constants
functions: $(VENV)/functions.stamp
	$(BIN)/python -m tools.functions $(ARGS)

# Other processors under an emulator, musl, WebAssembly, PyPy, other systems' compilers: ten minutes, on Debian 12, two
# thirds of it with ARGS=--quick. As root it installs what is missing.
cross: $(VENV)/train.stamp
	$(BIN)/python -m tools.cross $(ARGS)

# Wheels of nn and of examples/irisnet for musl, Windows and macOS, compiled by zig, audited, and used where a Python for
# such a system runs here (after `make pythons`, and with Debian's package wine64): some minutes
cross-wheels: $(VENV)/cross.stamp
	$(BIN)/python -m tools.cross wheels $(ARGS)

# The modules in a CPython without a GIL and in one on musl, which it compiles first, from Debian's source: a quarter of an
# hour, later some minutes. One of them: make pythons ARGS=musl
pythons: $(VENV)/dev.stamp
	$(BIN)/python -m tools.pythons $(ARGS)

# Random models, run on every system that can run one, compared by bits: two minutes. More seeds find more:
# make fuzz-compiler ARGS="--seed 1000 --count 20000"
fuzz-compiler: $(VENV)/dev.stamp
	$(BIN)/python -m tools.fuzz_compiler --seed 1 --count 200 --every 2 $(ARGS)

# Plants faults in the compiler and the C, one at a time, each of which the fuzzer must find: two minutes
faults: $(VENV)/dev.stamp
	$(BIN)/python -m tools.faults $(ARGS)

# Builds sdist and wheel into dist, reproduces and audits them, and uses them with every Python found: two minutes
wheel: $(VENV)/wheel.stamp
	$(BIN)/python tools/wheel.py $(ARGS)

%.stamp: $(SOURCES)
	test -d $(@D) || $(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade pip
	PYTHONWARNINGS=ignore $(@D)/bin/python -m pip install --quiet --editable '.[$(*F)]'
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-bench build dist *.egg-info nn.*.so nn_infer.*.so nn.*.pyd nn_infer.*.pyd
