# capture 1: program

def residual(COUNTER, x):
    try:
        out = graph(x)
    except Exception as error:
        return graph_failed(error)
    v_vars(COUNTER)['calls'] = 1
    v_vars(COUNTER)['last'] = out[1]
    return out[0]
