"""The elementary functions of micrograd.ieee: where their constants come from, how accurate and how fast they are.

    python -m tools.functions constants    derives all constants again and compares them with the modules'
    python -m tools.functions errors       errors, monotonicity and edges of the float64 functions; --count, --seed
    python -m tools.functions float32      the float32 functions at all 2**32 arguments, some minutes each; --step 101
    python -m tools.functions speed        nanoseconds, beside glibc's functions and its vector library

What comes after are names of functions: all of them by default. Exit code 1 if something is wrong. Needs gcc or clang
on x86-64 Linux, and for constants and errors mpmath and gmpy2: pip install 'micrograd-nn[functions]'.
"""
