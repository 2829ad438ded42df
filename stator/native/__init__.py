"""The native table.   a C callable  ->  its row: whether and how it may run while a program is traced"""
