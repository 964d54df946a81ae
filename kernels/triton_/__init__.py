"""Implementations in Triton, for GPUs; the only folder that may import it, and only when called.

Files without an underscore say what can be computed; the kernels are in the others. With
``TRITON_INTERPRET=1`` they run on CPU tensors too, in float32 and float16: the interpreter's
bfloat16 is wrong.
"""
