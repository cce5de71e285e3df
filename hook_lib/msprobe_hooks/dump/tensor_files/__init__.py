"""Files that hold tensors: .npy, torch.save archives, compressed copies."""
