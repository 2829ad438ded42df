"""Every figure of the documentation, as a ratio against torch._dynamo in one run: `python -m benchmarks`."""
