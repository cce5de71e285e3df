"""Traits of torch_npu's operators, a table for each kind."""
