"""What is special about the operators of torch_npu, a table for each kind."""
