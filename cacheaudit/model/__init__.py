"""What a recorded call is: prompts, usage, times and money, with no input or output.

Everything here is frozen. Tokens are integers, money is :class:`decimal.Decimal`, times are
seconds since the epoch, and ``None`` means *not known*, which is never the same as zero.
"""
