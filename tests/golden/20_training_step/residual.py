# capture 1: program

def residual(x, w):
    kept = keep((w,))
    try:
        try:
            out = graph(x, w)
        except BaseException:
            set_grad_enabled(True)
            raise
    except Exception as error:
        if put_back(kept):
            return graph_failed(error)
        show_program(error, places)
        raise
    return out[0]
