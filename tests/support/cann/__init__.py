"""A simulated CANN: what Huawei's torch_npu needs of it to have cards, in the host's memory and computed by its CPU."""
