"""Random Programs, run by everything that can run a Program: python -m tools.fuzz_compiler."""
