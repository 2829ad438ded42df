"""Entries that one process saves and another one loads.

programs.py        programs of every kind of entry, with the calls that are made of each
restart.py         both processes: save what was captured; load it, and compare with eager
test_restart.py    all programs in one pair of processes
mutations.py       changes of sources, settings and inputs between the two processes; 1,000 of them as a script
test_mutations.py  a sample
"""
