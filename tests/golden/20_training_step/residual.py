# capture 1: program

def residual(x, w):
    versions = (w._version, )
    try:
        try:
            out = graph(x, w)
        except BaseException:
            set_grad_enabled(True)
            raise
    except Exception as error:
        if (w._version, ) == versions:
            return graph_failed(error)
        show_program(error, places)
        raise
    return out[0]
