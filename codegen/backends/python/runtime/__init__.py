"""The hand-written part of every generated Python module. ../module.py copies it; nobody imports it.

It runs on Python 3.9, which is what PyPy is where distributions carry it.
"""
