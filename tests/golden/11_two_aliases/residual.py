# capture 1: program

def residual(first, x):
    try:
        out = graph(x)
    except Exception as error:
        return graph_failed(error)
    v_list.append(first, 1)
    return out[0]

# capture 2: program

def residual(first, x):
    try:
        out = graph(x)
    except Exception as error:
        return graph_failed(error)
    v_list.append(first, 1)
    return out[0]
