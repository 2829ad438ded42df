# capture 1: program

def residual(x):
    try:
        try:
            out = graph(x)
        except BaseException:
            set_grad_enabled(True)
            raise
    except Exception as error:
        return graph_failed(error)
    return out[0]
