# graph break SB009: the program called stator.graph_break()

# capture 1: program

def residual(graph_break, x):
    try:
        out = graph(x)
    except Exception as error:
        return graph_failed(error)
    range_iterator = v_iter(v_range)
    set_state(range_iterator, 1)
    return Resume(resume_at, (out[0], unbound, range_iterator, graph_break, ))

# graph break SB009: the program called stator.graph_break()

# capture 2: program resumed at line 11

def residual(stack, graph_break, x):
    try:
        out = graph(x)
    except Exception as error:
        return graph_failed(error)
    v_next(stack, None)
    return Resume(resume_at, (out[0], unbound, stack, graph_break, ))

# graph break SB009: the program called stator.graph_break()

# capture 3: program resumed at line 11

def residual(stack, graph_break, x, peek_stack_0):
    try:
        out = graph(x, peek_stack_0)
    except Exception as error:
        return graph_failed(error)
    v_next(stack, None)
    return Resume(resume_at, (out[0], unbound, stack, graph_break, ))

# capture 4: program resumed at line 11

def residual(stack, x):
    try:
        out = graph(x)
    except Exception as error:
        return graph_failed(error)
    exhausted(stack)
    return out[0]
