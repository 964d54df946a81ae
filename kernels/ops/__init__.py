"""One file an operation: contract, reference, cases."""
