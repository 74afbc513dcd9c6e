"""The modules in Pythons that no package index has: CPython without a GIL, and CPython on musl. `make pythons`.

Example: Debian's source package of CPython 3.13 becomes .cache/pythons/free-threaded/bin/python3.13t, under which nn is
built and the tests run that have most to do with threads.

| file | what it does |
|---|---|
| source.py | fetches CPython's source by apt, from the next release of Debian |
| build.py | configures and compiles it: some minutes each, once |
| free_threaded.py | runs tests there, in a copy of the checkout |
| musl.py | runs models and threads with small stacks there, without NumPy |
"""
