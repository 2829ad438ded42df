"""Hundreds of models of the installed libraries, each captured and compared with eager."""
