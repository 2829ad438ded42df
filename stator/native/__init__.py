"""The native table: which C callables may run while a program is traced, and how."""
