"""The torch recorder: what the program asks of torch, as an FX graph over fake tensors."""
