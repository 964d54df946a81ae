"""What models are made of. Everything here works on torch tensors and keeps no state of its own."""
