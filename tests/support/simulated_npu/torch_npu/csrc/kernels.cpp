// Operations on the simulated NPU: memory and views by kernels of its own, all else by the CPU's on the card's memory.
#include "card.h"
#include "faults.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <unordered_set>
#include <utility>
#include <vector>

namespace npu {
namespace {

using at::Tensor;
using c10::IntArrayRef;
using std::optional;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

std::atomic<int64_t> host_copies{0};
std::atomic<bool> matmul_in_hf32{false}, conv_in_hf32{true};
thread_local bool is_in_kernel = false;

// The operations that ran while the library was asked to dump their kernels.
std::mutex dump_mutex;
bool is_dumping = false;
std::vector<std::string> dumped;

void dump(const std::string& operation) {
  const std::lock_guard<std::mutex> lock(dump_mutex);
  if (is_dumping) {
    dumped.push_back(operation);
  }
}

// What kernels copy is theirs; whoever else reads a card waits for it.
void wait_to_copy() {
  if (!is_in_kernel) {
    ++host_copies;
    wait_for_card();
  }
}

// Marks what a kernel of a card does; a kernel may run others.
class InKernel {
 public:
  const bool is_outermost = !std::exchange(is_in_kernel, true);

  ~InKernel() {
    is_in_kernel = !is_outermost;
  }
};

// Memory and views.

Tensor empty(
    IntArrayRef size, optional<at::ScalarType> dtype, optional<at::Layout>, optional<at::Device> device, optional<bool>,
    optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_generic(size, c10::GetAllocator(kType), kKeys, c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(
    IntArrayRef size, IntArrayRef stride, optional<at::ScalarType> dtype, optional<at::Layout>,
    optional<at::Device> device, optional<bool>) {
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_strided_generic(
      size, stride, c10::GetAllocator(kType), kKeys, c10::dtype_or_default(dtype));
}

Tensor view(const Tensor& self, IntArrayRef size) {
  return at::native::view(self, size);
}

Tensor as_strided(const Tensor& self, IntArrayRef size, IntArrayRef stride, optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

const Tensor& resize_(const Tensor& self, IntArrayRef size, optional<at::MemoryFormat> format) {
  return at::native::resize_(self, size, format);
}

// Copies.

// The same memory as a tensor of the CPU, which keeps it alive.
Tensor seen_by_host(const Tensor& self) {
  if (self.is_cpu()) {
    return self;
  }
  const auto keep = [self](void*) {};
  return at::from_blob(self.data_ptr(), self.sizes(), self.strides(), keep, self.options().device(at::kCPU));
}

Tensor copy_from(const Tensor& self, const Tensor& to, bool) {
  check_card();
  if (to.is_cpu()) {
    wait_to_copy();
  }
  auto target = seen_by_host(to);
  at::native::copy_(target, seen_by_host(self), false);
  return to;
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& to) {
  to.resize_(self.sizes());
  return copy_from(self, to, false);
}

at::Scalar local_scalar(const Tensor& self) {
  check_card();
  wait_to_copy();
  return at::native::_local_scalar_dense_cpu(seen_by_host(self));
}

// Everything else.

template <typename Visit>
void each_tensor(const torch::jit::Stack& stack, size_t count, const Visit& visit) {
  for (size_t place = stack.size() - count; place < stack.size(); ++place) {
    if (stack[place].isTensor()) {
      visit(stack[place].toTensor());
    } else if (stack[place].isTensorList()) {
      for (const Tensor& tensor : stack[place].toTensorVector()) {
        visit(tensor);
      }
    }
  }
}

bool starts_with(const std::string& text, std::initializer_list<const char*> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(), [&](const char* each) { return text.rfind(each, 0) == 0; });
}

// Returns the device that an operation's tensors are on, none where it has none. As a real card, this one cannot read
// the memory of another; numbers may come from the CPU, and so may indices.
optional<at::Device> device_of(const std::string& operation, const torch::jit::Stack& stack, size_t count) {
  optional<at::Device> found;
  const bool takes_indices = starts_with(operation, {"aten::index", "aten::_index"});
  each_tensor(stack, count, [&](const Tensor& tensor) {
    if (!tensor.defined() || (tensor.is_cpu() && (tensor.dim() == 0 || takes_indices))) {
      return;
    }
    TORCH_CHECK(
        !found || *found == tensor.device(), "Expected all tensors to be on the same device, but found at least two ",
        "devices, ", *found, " and ", tensor.device(), "! (", operation, ")");
    found = tensor.device();
  });
  return found;
}

// Rounds float32 to the 11 stored bits of HF32, halves up in magnitude.
Tensor rounded_to_hf32(const Tensor& self) {
  auto rounded = self.clone();
  auto* bits = static_cast<uint32_t*>(rounded.data_ptr());
  const auto count = static_cast<int64_t>(rounded.storage().nbytes() / sizeof(uint32_t));
  std::transform(bits, bits + count, bits, [](uint32_t each) {
    const bool is_finite = (each & 0x7f800000u) != 0x7f800000u;
    return is_finite ? (each + 0x800u) & ~0xfffu : each;
  });
  return rounded;
}

bool multiplies_in_hf32(const std::string& operation) {
  return matmul_in_hf32 && starts_with(operation, {"aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::mv"});
}

void round_operands(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const auto& arguments = op.schema().arguments();
  const auto first = stack.size() - arguments.size();
  for (size_t place = 0; place < arguments.size(); ++place) {
    auto& value = stack[first + place];
    const bool is_read = arguments[place].alias_info() == nullptr;
    if (is_read && value.isTensor() && value.toTensor().scalar_type() == at::kFloat) {
      value = rounded_to_hf32(value.toTensor());
    }
  }
}

// Torch's CPU fallback brings back what a kernel has written to where its schema says that it writes. This one's does not.
void expose_running_statistics(const std::string& operation, torch::jit::Stack& stack, size_t count) {
  if (operation == "aten::native_batch_norm") {
    for (auto* value = &stack[stack.size() - count + 3]; value <= &stack[stack.size() - count + 4]; ++value) {
      *value = value->isTensor() ? seen_by_host(value->toTensor()) : *value;
    }
  }
}

// Torch asks other devices than its own for their convolutions by a name of its own.

Tensor operand(const Tensor& self) {
  const bool is_rounded = conv_in_hf32 && self.scalar_type() == at::kFloat;
  return seen_by_host(is_rounded ? rounded_to_hf32(self) : self);
}

Tensor convolution(
    const Tensor& input, const Tensor& weight, const optional<Tensor>& bias, IntArrayRef stride, IntArrayRef padding,
    IntArrayRef dilation, bool transposed, IntArrayRef output_padding, int64_t groups) {
  check_card();
  const InKernel kernel;
  const bool has_bias = bias.has_value() && bias->defined();
  return at::convolution(
             operand(input), operand(weight), has_bias ? optional<Tensor>(seen_by_host(*bias)) : std::nullopt, stride,
             padding, dilation, transposed, output_padding, groups)
      .to(input.device());
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& gradient, const Tensor& input, const Tensor& weight, IntArrayRef stride, IntArrayRef padding,
    IntArrayRef dilation, bool transposed, IntArrayRef output_padding, int64_t groups, std::array<bool, 3> wanted) {
  check_card();
  const InKernel kernel;
  const std::array<int64_t, 1> bias_size{weight.size(transposed ? 1 : 0) * (transposed ? groups : 1)};
  // The gradient of the bias is a sum, which no mode rounds.
  const auto gradients = [&](const Tensor& arriving, std::array<bool, 3> which) {
    return at::convolution_backward(
        arriving, operand(input), operand(weight), IntArrayRef(bias_size), stride, padding, dilation, transposed,
        output_padding, groups, which);
  };
  const auto products = gradients(operand(gradient), {wanted[0], wanted[1], false});
  const auto sums = gradients(seen_by_host(gradient), {false, false, wanted[2]});
  const auto on_card = [&](const Tensor& each) { return each.defined() ? each.to(input.device()) : each; };
  return {on_card(std::get<0>(products)), on_card(std::get<1>(products)), on_card(std::get<2>(sums))};
}

// Kernels draw from the CPU's generator, whose state is the card's (or the given generator's) as long as one runs.
class DrawsFromCard {
 public:
  DrawsFromCard(torch::jit::Stack& stack, size_t count) : lock_(mutex()), host_(at::globalContext().defaultGenerator(at::kCPU)) {
    card_ = at::globalContext().defaultGenerator(on(current_card()));
    for (size_t place = stack.size() - count; place < stack.size(); ++place) {
      if (stack[place].isGenerator()) {
        card_ = stack[place].toGenerator();
        stack[place] = c10::IValue();
      }
    }
    former_ = host_.get_state();
    host_.set_state(card_.get_state());
  }
  ~DrawsFromCard() {
    card_.set_state(host_.get_state());
    host_.set_state(former_);
  }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  std::lock_guard<std::mutex> lock_;
  at::Generator host_, card_;
  Tensor former_;
};

void run_on_card(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  check_card();
  const std::string operation = op.operator_name().name;
  const auto count = op.schema().arguments().size();
  const InKernel kernel;
  const c10::OptionalDeviceGuard guard(device_of(operation, *stack, count));
  dump(operation);
  const auto fault = kernel.is_outermost ? fault_of(operation) : Fault::none;
  fail_before(fault, operation);
  if (multiplies_in_hf32(operation)) {
    round_operands(op, *stack);
  }
  {
    optional<DrawsFromCard> draws;
    if (op.hasTag(at::Tag::nondeterministic_seeded)) {
      draws.emplace(*stack, count);
    }
    expose_running_statistics(operation, *stack, count);
    at::native::cpu_fallback(op, stack);
  }
  do_after(fault, *stack);
}

// What the card has no kernel for. As torch_npu's, the warning comes once for an operator, and not by way of Python.
void leave_to_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  static std::unordered_set<c10::OperatorName> told;
  if (told.insert(op.operator_name()).second) {
    const auto text = c10::str(
        "CAUTION: The operator '", op.operator_name(), "' is not currently supported on the NPU backend and will ",
        "fall back to run on the CPU. This may have performance implications.");
    c10::WarningHandler().process(c10::Warning(c10::UserWarning(), {__func__, __FILE__, __LINE__}, text, false));
  }
  run_on_card(op, stack);
}

// Whether the card has a kernel for an operator of the CPU's that torch does not put together of others.
bool is_on_card(const c10::OperatorHandle& op) {
  using Key = c10::DispatchKey;
  const auto has = [&](Key key) { return op.hasKernelForDispatchKey(key); };
  return has(Key::CPU) && !has(Key::PrivateUse1) && !has(Key::CompositeExplicitAutograd) &&
      !has(Key::CompositeExplicitAutogradNonFunctional) && !has(Key::CompositeImplicitAutograd) &&
      fault_of(op.operator_name().name) != Fault::falls_back;
}

} // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&leave_to_cpu>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("as_strided", &as_strided);
  library.impl("view", &view);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("unfold", &at::native::unfold);
  library.impl("view_as_real", &at::native::view_as_real);
  library.impl("view_as_complex", &at::native::view_as_complex);
  library.impl("resize_", &resize_);
  library.impl("set_.source_Tensor", &at::native::set_tensor_);
  library.impl("set_.source_Storage", static_cast<Tensor& (*)(Tensor&, at::Storage)>(&at::native::set_));
  library.impl("set_.source_Storage_storage_offset", &at::native::set_storage_cpu_);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("_local_scalar_dense", &local_scalar);
  library.impl("convolution_overrideable", &convolution);
  library.impl("convolution_backward_overrideable", &convolution_backward);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (name.getNamespace() == "aten" && is_on_card(dispatcher.findSchemaOrThrow(name.name.c_str(), name.overload_name.c_str()))) {
      library.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_card>());
    }
  }
}

TORCH_LIBRARY_FRAGMENT(npu_runtime, library) {
  library.def("host_copies() -> int", [] { return host_copies.load(); });
  library.def("set_dumping(bool on) -> str[]", [](bool on) {
    const std::lock_guard<std::mutex> lock(dump_mutex);
    is_dumping = on;
    return std::exchange(dumped, {});
  });
  library.def("set_hf32(bool matmul, bool conv) -> ()", [](bool matmul, bool conv) {
    matmul_in_hf32 = matmul;
    conv_in_hf32 = conv;
  });
}

} // namespace npu
