# capture 1: program

def residual(items, x):
    try:
        out = graph(x)
    except Exception as error:
        return graph_failed(error)
    v_list.extend(items, [out[0], 2])
    return items
