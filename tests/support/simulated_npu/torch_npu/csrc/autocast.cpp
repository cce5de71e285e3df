// What autocast casts on the NPU: torch's own lists, as torch_npu takes them.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define WIDER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define PROMOTED(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
#define CHOSEN(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_LOWER_PRECISION_FP(LOWER)
  AT_FORALL_FP32(WIDER)
  AT_FORALL_FP32_SET_OPT_DTYPE(CHOSEN)
  AT_FORALL_PROMOTE(PROMOTED)
}
