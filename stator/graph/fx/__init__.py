"""FX nodes, graphs and graph modules; nothing here traces.

In: operations, arguments, finished graphs.  Out: nodes, GraphModules, straight-line functions, instances.
"""
