"""Random Programs, run by everything that can run a Program: python -m codegen.fuzz."""
