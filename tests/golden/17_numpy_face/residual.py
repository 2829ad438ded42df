# capture 1: program

def residual(x):
    versions = (x._version, )
    try:
        out = graph(x)
    except Exception as error:
        if (x._version, ) == versions:
            return graph_failed(error)
        show_program(error, places)
        raise
    scalar = out[1].numpy()[()]
    t = (out[0], scalar)
    return t
