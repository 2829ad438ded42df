# capture 1: Stack.forward

def residual(args_0, self_layers_0_linear_weight, self_layers_0_linear_bias, self_layers_1_linear_weight, self_layers_1_linear_bias, self_layers_2_linear_weight, self_layers_2_linear_bias):
    try:
        out = graph(args_0, self_layers_0_linear_weight, self_layers_0_linear_bias, self_layers_1_linear_weight, self_layers_1_linear_bias, self_layers_2_linear_weight, self_layers_2_linear_bias)
    except Exception as error:
        return graph_failed(error)
    return out[0]
