"""Symbolic values.   sizes and numbers of a call  ->  backed symbols; numbers of the graph  ->  unbacked symbols"""
