"""The documentation as a site, by Sphinx: `make site` builds it into build/site.

The source folder is the checkout itself, so that links between README.md, docs and benchmarks work as they are.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from micrograd import __version__

project = "micrograd-nn"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "site_pages"]
root_doc = "README"
include_patterns = ["*.md", "benchmarks/*.md", "docs/*.md", "docs/*.rst", "docs/api/*.rst"]
exclude_patterns = [".*", "build", "dist", "examples", "tests"]

# Pages
myst_heading_anchors = 4
highlight_language = "text"
suppress_warnings = ["ref.python"]  # Program and Floats are documented where they are and in codegen

# API
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
maximum_signature_line_length = 88
add_module_names = False
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

# Looks: nothing comes from the network, neither fonts nor scripts.
html_theme = "furo"
html_title = project
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
