"""Module objects that were created and not executed, were refused, or have been cleared: they have no model."""

from __future__ import annotations

import sys

import pytest

UNFINISHED = """
import ctypes, gc, importlib.machinery, importlib.util, sys, types, _imp

name, path, how = sys.argv[1:]

def create():
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    return importlib.util.spec_from_file_location(name, path, loader=loader)

first = None
if how == "module_from_spec":
    module = importlib.util.module_from_spec(create())
elif how == "create_dynamic":
    module = _imp.create_dynamic(create())
elif how == "create_dynamic after an import":
    first = importlib.util.module_from_spec(create())
    first.__spec__.loader.exec_module(first)
    module = _imp.create_dynamic(create())
elif how == "refused":
    first = importlib.util.module_from_spec(create())
    first.__spec__.loader.exec_module(first)
    module = importlib.util.module_from_spec(create())
    try:
        module.__spec__.loader.exec_module(module)
        sys.exit("a second model in one process")
    except ImportError:
        pass
else:  # what the garbage collector does to a module in a cycle: some function of it may still be held elsewhere
    module = importlib.util.module_from_spec(create())
    module.__spec__.loader.exec_module(module)
    ctypes.pythonapi.PyModule_GetDef.argtypes = [ctypes.py_object]
    ctypes.pythonapi.PyModule_GetDef.restype = ctypes.c_void_p
    pointer = ctypes.sizeof(ctypes.c_void_p)
    before_name = object.__basicsize__ + 3 * pointer  # of a PyModuleDef, in which m_clear is six fields after m_name
    address = ctypes.pythonapi.PyModule_GetDef(module) + before_name + 6 * pointer
    clear = ctypes.cast(ctypes.c_void_p.from_address(address), ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object))
    assert clear(module) == 0

def digest():
    return None if first is None or not hasattr(first, "data") else [first.data(i) for i in range(100)]

image = first.info()["inputs"] if first is not None else 784
data, labels = bytes(image), b"\\x01"
CALLS = {
    "forward": [(1, data), ()], "backward": [()], "zero_grad": [()], "update": [(), (0, 1)], "data": [(0,)],
    "grad": [(0,)], "reset": [(1,), ()], "info": [()], "state_dict": [()], "grad_dict": [()],
    "load_state_dict": [({},), (1,)], "optimizer_state": [()], "load_optimizer_state": [({},), (1,)],
    "train": [(data, labels)], "evaluate": [(data, labels)],
    "accumulate": [(data, labels)], "predict": [(data,)],
    "outputs": [(data,)], "probabilities": [(data,)], "predict_batch": [(data,), (b"",)],
    "outputs_batch": [(data,)], "probabilities_batch": [(data,)], "save_weights": [("w",)], "load_weights": [("w",)],
    "input_grad": [()], "metrics": [(data, labels)], "flat_data": [()], "flat_grad": [()],
    "_train_shared": [(None, 0, 0, 1, data, labels)],
}
functions = {n: f for n, f in vars(module).items() if isinstance(f, types.BuiltinFunctionType)}
assert len(functions) in (7, 29) and set(functions) <= set(CALLS), sorted(functions)
before, count = digest(), 0
for function_name, function in functions.items():
    for arguments in CALLS[function_name]:
        try:
            function(*arguments)
            sys.exit(f"{function_name} works")
        except RuntimeError as error:
            assert str(error).endswith("was not imported to the end, or has been cleared: it has no model"), error
            assert repr(name) in str(error)
            count += 1
assert digest() == before
if first is not None:
    first.predict(data)
del module, functions
gc.collect()
if first is not None:
    first.predict(data)
print(count)
"""
WAYS = ["module_from_spec", "create_dynamic", "create_dynamic after an import", "refused", "cleared"]


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("name", ["nn", "nn_infer", "own"])
def test_every_function_of_a_module_without_a_model_says_so(name, how, run_python, compiled):
    if name == "own":
        extension = compiled("mlp")
        name, path = extension.name, str(extension.path)
    else:
        path = __import__(name).__file__
    assert int(run_python(UNFINISHED, name, path, how)) == (8 if name == "nn_infer" else 35)


def test_a_module_is_its_own_again_after_a_reload(run_python):
    script = """
import importlib, nn, nn_infer
for module in (nn, nn_infer):
    before = module.predict(bytes(784))
    assert importlib.reload(module) is module and module.predict(bytes(784)) == before
print("same")
"""
    assert run_python(script, timeout=60).strip() == "same", sys.version
