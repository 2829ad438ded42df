"""Stage goldens of twenty small programs, for reading: what each stage makes of `program.py`.

decode.txt    the instructions that the interpreter sees, with the exception table
graph.txt     the graph of each capture, and the graph breaks between them
guards.txt    the guards of each capture, with the line that needs each
residual.py   the Python source that a call runs after its guards hold

`python -m tests.golden --update` writes them anew; read the difference before you commit it.
"""
