"""The interpreter: a program's bytecode, run on real objects over the shadow heap."""
