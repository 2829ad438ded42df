# capture 1: program

def residual(x):
    try:
        out = graph(x)
    except Exception as error:
        show_program(error, places)
        raise
    scalar = numpy(out[1])[()]
    t = (out[0], scalar)
    numpy(detach(x))
    return t
