# capture 1: program

def residual(x, random___self):
    streams = saved_streams((random___self,))
    drawn = random(random___self)
    state = get_rng_state()
    try:
        out = graph(x, float_tensor(drawn))
    except Exception as error:
        set_rng_state(state)
        restore_streams(streams)
        return graph_failed(error)
    return out[0]
