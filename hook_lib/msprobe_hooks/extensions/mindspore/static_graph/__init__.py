"""What MindSpore itself dumps of a static graph: the tensors of each kernel, a folder per iteration, as a `Dump`."""
