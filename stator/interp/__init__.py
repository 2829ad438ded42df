"""The interpreter.   bytecode, real objects over the shadow heap  ->  values, exceptions of the program, or a Break"""
