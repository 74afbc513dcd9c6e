"""A model -> one HTML file: page.py fills page.html with it, wasm.py makes WebAssembly of its C."""
