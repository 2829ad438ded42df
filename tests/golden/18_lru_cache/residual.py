# capture 1: program

def residual(x):
    try:
        out = graph(x)
    except Exception as error:
        return graph_failed(error)
    use_cache(cache, (1, ), {}, 10)
    use_cache(cache, (1, ), {}, 10)
    return out[0]
