# graph break SB001: syslog.LOG_MASK is not in the native table

# capture 1: program

def residual(x):
    try:
        out = graph(x)
    except Exception as error:
        return graph_failed(error)
    return Resume(resume_at, (out[0], x, LOG_MASK, 3, ))

# capture 2: program resumed at line 10

def residual(y):
    try:
        out = graph(y)
    except Exception as error:
        return graph_failed(error)
    return out[0]
