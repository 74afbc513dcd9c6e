"""How loops run: passes from the loop language to the loop language, each in a file of its own.

A pass takes Loops and returns Loops that compute the same numbers. Each can be left out. `pipeline` lists the passes
of each target, in order.
"""
