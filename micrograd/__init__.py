"""micrograd: scalar reverse-mode autodiff (`engine`), small networks on top of it (`nn`) and losses (`functional`),
pictures of graphs (`draw`).
"""

__version__ = "0.1.0"
