"""Coverage-guided fuzzing of what takes input from outside: `python -m tools.fuzz TARGET --seconds N`.

libFuzzer, by way of atheris, makes up bytes and keeps those that reach new code. A target turns bytes into calls and
says what has to hold; nothing of it needs atheris, so any input can be run again by any Python: `--replay FILE`.

choices.py   bytes -> decisions
objects.py   decisions -> arguments, right ones and all kinds of wrong ones
models.py    the compiled modules, with sanitizers and coverage, and a twin of each to compare with
session.py   a sequence of calls of a compiled module, and all that can be observed of it
calls.py     targets `calls`, `train` and `load`: sessions of a module and of its twin
idx.py       target `idx`: micrograd/data/mnist.py
weights.py   target `weights`: the two readers of safetensors, micrograd/commands/checkpoint.py and codegen/weights.py
onnx_files.py   target `onnx`: codegen/onnx
run.py       runs a target under libFuzzer, in the process that child.py is, and reads what it prints
"""
