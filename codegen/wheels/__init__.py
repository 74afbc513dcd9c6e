"""Models as extension modules of a project's own wheel: a plugin for setuptools. See docs/wheel.md."""
