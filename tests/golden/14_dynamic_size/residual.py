# capture 1: program

def residual(x):
    try:
        out = graph(x)
    except Exception as error:
        return graph_failed(error)
    return out[0]

# capture 2: program

def residual(x):
    try:
        out = graph(x)
    except Exception as error:
        return graph_failed(error)
    return out[0]
