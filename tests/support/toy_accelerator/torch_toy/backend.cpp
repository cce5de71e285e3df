// The smallest accelerator that torch takes, as PrivateUse1: its memory is the host's, a few operators are its own, and
// for all others it lets the CPU compute. A generator for each card, autocast of products, and faults by
//   TOY_FAULTS=exp=wrong,tanh=kills,cumsum=loses-card    by operator: a wrong first element, a dead process, a lost card
//   TOY_FALLBACK=0     nothing computes for it: what it has no kernel for, it has not
//   TOY_FLOAT64=0      tensors of float64 are refused, as by MPS
//   TOY_CARDS=2        how many cards there are
// It counts what a card would be given: kernels by operator, transfers "to card" and "to host", and "waits" of the host.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/add.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/extension.h>
#include <torch/library.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace toy {

constexpr auto TYPE = c10::DeviceType::PrivateUse1;
thread_local c10::DeviceIndex current = 0;
bool is_lost = false;

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

c10::DeviceIndex count() {
  static const int cards = std::stoi(variable("TOY_CARDS", "2"));
  return static_cast<c10::DeviceIndex>(cards);
}

const std::map<std::string, std::string>& faults() {
  static const auto by_operator = [] {
    std::map<std::string, std::string> found;
    std::stringstream words(variable("TOY_FAULTS", ""));
    for (std::string word; std::getline(words, word, ',');) {
      found[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    }
    return found;
  }();
  return by_operator;
}

void require_card() {
  TORCH_CHECK(!is_lost, "toy: the card is lost");
}

// Backward passes run on a thread of their own.
std::mutex counting;
std::map<std::string, long> counted;
thread_local bool is_counting = true;

// What the CPU fetches to compute for the card is no transfer that a card with that kernel would have.
struct Uncounted {
  Uncounted() { is_counting = false; }
  ~Uncounted() { is_counting = true; }
};

void count_one(const std::string& what) {
  if (!is_counting) return;
  const std::lock_guard<std::mutex> lock(counting);
  ++counted[what];
}

std::map<std::string, long> take_counts() {
  const std::lock_guard<std::mutex> lock(counting);
  return std::exchange(counted, {});
}

// What the fault of an operator does before it computes; returns whether its result is to be wrong.
bool meets_fault(const std::string& name) {
  require_card();
  const auto fault = faults().find(name);
  if (fault == faults().end()) return false;
  if (fault->second == "kills") std::abort();
  is_lost = fault->second == "loses-card";
  require_card();
  return fault->second == "wrong";
}

// The tensor's memory as the CPU sees it.
at::Tensor on_host(const at::Tensor& tensor) {
  if (!tensor.is_privateuseone()) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
}

void make_wrong(const at::Tensor& result) {
  if (result.numel() > 0 && result.is_floating_point()) on_host(result).flatten()[0].add_(0.25);
}

// Memory.

struct HostMemory final : at::Allocator {
  at::DataPtr allocate(size_t size) override {
    void* memory = size ? std::malloc(size) : nullptr;
    return {memory, memory, &std::free, c10::Device(TYPE, current)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, size_t size) const override { std::memcpy(to, from, size); }
};

HostMemory memory;
REGISTER_ALLOCATOR(TYPE, &memory);

// Cards. Nothing runs in parallel, so that there is one stream and nothing to wait for.

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return TYPE; }
  c10::Device getDevice() const override { return {TYPE, current}; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() < count(), "toy: card ", int(device.index()), " does not exist");
    if (device.index() >= 0) current = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) current = device.index();
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device former = getDevice();
    setDevice(device);
    return former;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return count(); }
  c10::Stream getStream(c10::Device device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
  void synchronizeDevice(const c10::DeviceIndex) const override {
    count_one("waits");
    require_card();
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// Random numbers: those that the CPU would draw in the state of the card's generator.

struct GeneratorOfCard final : at::CPUGeneratorImpl {
  explicit GeneratorOfCard(c10::DeviceIndex index) {
    device_ = c10::Device(TYPE, index);
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  }
};

const at::Generator& default_generator(c10::DeviceIndex index) {
  static std::vector<at::Generator> of_cards = [] {
    std::vector<at::Generator> made;
    for (c10::DeviceIndex card = 0; card < count(); ++card) made.push_back(at::make_generator<GeneratorOfCard>(card));
    return made;
  }();
  return of_cards.at(index < 0 ? current : index);
}

template <typename Draw>
void draw(const at::Tensor& self, const std::optional<at::Generator>& given, Draw drawn_by) {
  const at::Generator& own = given.has_value() ? *given : default_generator(self.device().index());
  count_one("random");
  at::Generator on_cpu = at::detail::createCPUGenerator();
  on_cpu.set_state(own.get_state());
  drawn_by(on_host(self), on_cpu);
  at::Generator(own).set_state(on_cpu.get_state());
}

at::Tensor& uniform_(at::Tensor& self, double from, double to, std::optional<at::Generator> generator) {
  draw(self, generator, [&](at::Tensor values, at::Generator source) { values.uniform_(from, to, source); });
  return self;
}

at::Tensor& normal_(at::Tensor& self, double mean, double std, std::optional<at::Generator> generator) {
  draw(self, generator, [&](at::Tensor values, at::Generator source) { values.normal_(mean, std, source); });
  return self;
}

at::Tensor& bernoulli_(at::Tensor& self, double p, std::optional<at::Generator> generator) {
  draw(self, generator, [&](at::Tensor values, at::Generator source) { values.bernoulli_(p, source); });
  return self;
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return count(); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<GeneratorOfCard>(index < 0 ? current : index);
  }
};

// Operators.

void refuse(std::optional<at::ScalarType> dtype) {
  require_card();
  TORCH_CHECK_TYPE(
      dtype != at::kDouble || variable("TOY_FLOAT64", "1") != "0", "Cannot make a toy tensor of float64: toy doesn't support float64");
}

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  refuse(dtype);
  const c10::DeviceGuard guard(c10::device_or_default(device));
  constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_generic(size, &memory, keys, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  refuse(dtype);
  const c10::DeviceGuard guard(c10::device_or_default(device));
  constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_strided_generic(size, stride, &memory, keys, c10::dtype_or_default(dtype));
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to, bool is_asynchronous) {
  require_card();
  count_one(!self.is_privateuseone() ? "to card" : to.is_privateuseone() ? "copy" : "to host");
  if (!to.is_privateuseone() && !is_asynchronous) count_one("waits");
  on_host(to).copy_(on_host(self));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& to) {
  at::native::resize_(to, self.sizes());
  return copy_from(self, to, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  count_one("to host");
  count_one("waits");
  return on_host(self).item();
}

at::Tensor& exp_out(const at::Tensor& self, at::Tensor& out) {
  const bool is_wrong = meets_fault("exp");
  count_one("exp");
  on_host(out).copy_(at::exp(on_host(self)));
  if (is_wrong) make_wrong(out);
  return out;
}

at::Tensor& mm_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  const bool is_wrong = meets_fault("mm");
  count_one("mm");
  on_host(out).copy_(at::mm(on_host(self), on_host(other)));
  if (is_wrong) make_wrong(out);
  return out;
}

at::Tensor& add_out(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha, at::Tensor& out) {
  require_card();
  count_one("add");
  on_host(out).copy_(at::add(on_host(self), on_host(other), alpha));
  return out;
}

at::Tensor& mul_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  require_card();
  count_one("mul");
  on_host(out).copy_(at::mul(on_host(self), on_host(other)));
  return out;
}

void compute_on_cpu(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  const std::string name = operation.operator_name().name.substr(sizeof("aten::") - 1);
  const bool is_wrong = meets_fault(name);
  count_one(name);
  const Uncounted uncounted;
  at::native::cpu_fallback(operation, stack);
  if (is_wrong && !stack->empty() && stack->back().isTensor()) make_wrong(stack->back().toTensor());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("resize_", at::native::resize_);
  m.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("uniform_", uniform_);
  m.impl("normal_", normal_);
  m.impl("bernoulli_.float", bernoulli_);
  m.impl("exp.out", exp_out);
  m.impl("mm.out", mm_out);
  m.impl("add.out", add_out);
  m.impl("mul.out", mul_out);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  if (variable("TOY_FALLBACK", "1") != "0") {
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&compute_on_cpu>());
  }
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  KERNEL_PRIVATEUSEONE(mm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(matmul, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(conv2d, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(layer_norm, fp32)
}

}  // namespace toy

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  static toy::Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  m.def("count", [] { return int(toy::count()); });
  m.def("take_counts", &toy::take_counts);
  m.def("default_generator", [](int index) { return toy::default_generator(static_cast<c10::DeviceIndex>(index)); });
}
