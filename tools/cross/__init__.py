"""The same models on processors, systems, compilers and interpreters that this machine is not: `make cross`.

Example: every number that xor.c computes natively must come out of xor.c on an emulated s390x, of a WebAssembly program
around xor.c and of xor.py on PyPy, to the bit.

| file | what it does |
|---|---|
| packages.py | brings compilers, emulators, and Python for other processors |
| sources.py, functions.py | write the C and the Python of the models, among them one with every op |
| builds.py, driver.py | compile modules, and train them under the Python of a platform |
| epoch.py | has the data of a whole epoch, and the hash of its weights |
| emulate.py | does that for each processor |
| without_python.py, plain/ | do the same with programs in C, for musl and WebAssembly |
| trained.py, plain/ | train plain C there, on other processors and on a microcontroller's |
| interpreters.py | does it with generated Python |
| symbols.py | looks for calls of a C library's mathematical functions |
| compile_only.py, stand_ins/ | compile for macOS and Windows, where nothing can be run from here |
| compare.py, report.py | find a bit that differs; print the table |
"""
