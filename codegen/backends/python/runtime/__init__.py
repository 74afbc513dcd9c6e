"""The hand-written part of every generated Python module. ../module.py copies it; nothing imports it, but
codegen.models imports weights.py.

It runs on Python 3.9, the version that the PyPy of distributions implements.
"""
