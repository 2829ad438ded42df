# capture 1: program

def residual(x, w):
    try:
        try:
            out = graph(x, w)
        except BaseException:
            set_autocast_enabled('cpu', False)
            set_autocast_dtype('cpu', dtype)
            set_autocast_cache_enabled(True)
            raise
    except Exception as error:
        return graph_failed(error)
    return out[0]
