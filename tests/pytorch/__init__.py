"""PyTorch's own tests, run with Stator in torch._dynamo's place."""
