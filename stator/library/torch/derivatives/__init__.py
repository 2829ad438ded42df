"""Rules for derivatives and function transforms of torch.

In: a call of autograd.grad, autograd.Function, torch.func or forward mode.  Out: nodes over inner graphs.
"""
