"""Programs of torch.distributed on two gloo processes, eagerly and compiled.

programs.py      the decorators that add a program to the table
*_programs.py    the programs, one file for each subject
worker.py        one rank: runs programs, compares, writes a line of JSON for each
__main__.py      starts the ranks and prints the table: `python -m tests.ranks`
"""
