"""The compiled modules on processors and systems that this machine is not: `make cross`.

packages.py brings compilers and an emulator, sources.py writes C, builds.py compiles it, driver.py runs under the
emulator, compare.py looks for a bit that differs, emulate.py has all of these work together, and compile_only.py does
what can be done for macOS and Windows from here.
"""
