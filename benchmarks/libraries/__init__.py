"""Small programs of libraries that call torch.compile, under stator.install() and under torch._dynamo.

In: the libraries that are installed.  Out: for each program, whether its values equal eager's, and its graphs, breaks
and captured operations on both sides.
"""
