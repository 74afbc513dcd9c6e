"""micrograd: scalar reverse-mode autodiff (`engine`) on a table of operations (`ops`), small networks on top of it
(`nn`), losses (`functional`), pictures of graphs (`draw`).
"""

__version__ = "0.1.0"
