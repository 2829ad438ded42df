"""A fuzzer of programs: random Python, run eagerly and compiled, must not differ in anything observable."""
