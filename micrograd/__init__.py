"""micrograd: scalar reverse-mode autodiff (`engine`), small networks on top of it (`nn`) and losses (`functional`)."""

__version__ = "0.1.0"
