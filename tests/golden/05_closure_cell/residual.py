# capture 1: make.<locals>.add

def residual(cell_object_at_0xaddress, x):
    try:
        out = graph(x)
    except Exception as error:
        return graph_failed(error)
    cell_object_at_0xaddress.cell_contents = 1
    return out[0]
