"""The test suite under tools that watch memory: `python -m tools.memory TOOL [arguments of pytest]`."""
