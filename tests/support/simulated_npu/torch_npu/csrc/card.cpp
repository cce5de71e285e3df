#include "card.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace npu {
namespace {

constexpr int kMostCards = 16;

thread_local c10::DeviceIndex selected = 0;
std::array<std::atomic<int64_t>, kMostCards> allocated{};
std::atomic<bool> is_lost{false};

using Clock = std::chrono::steady_clock;
std::mutex work_mutex;
Clock::time_point done_at{};
std::string failed_work;

int64_t number_from(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::stoll(text) : otherwise;
}

c10::DeviceIndex checked(c10::DeviceIndex card) {
  TORCH_CHECK(card >= 0 && card < card_count(), "Invalid NPU device ID ", int(card), ": ", int(card_count()), " visible");
  return card;
}

// One block of a card's memory, freed when the last tensor that uses it goes.
struct Block {
  void* memory;
  int64_t bytes;
  c10::DeviceIndex card;
};

void free_block(void* context) {
  auto* block = static_cast<Block*>(context);
  allocated[block->card] -= block->bytes;
  std::free(block->memory);
  delete block;
}

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    const auto card = current_card();
    const auto bytes = static_cast<int64_t>(size);
    if (allocated[card] + bytes > total_bytes()) {
      throw_out_of_memory(card, bytes);
    }
    auto* block = new Block{size ? std::malloc(size) : nullptr, bytes, card};
    allocated[card] += bytes;
    return {block->memory, block, &free_block, on(card)};
  }

  // Data and context differ, so nothing may take a pointer for both.
  c10::DeleterFnPtr raw_deleter() const override {
    return nullptr;
  }

  void copy_data(void* to, const void* from, std::size_t count) const override {
    default_copy_data(to, from, count);
  }
};

Allocator allocator;
REGISTER_ALLOCATOR(kType, &allocator);

// Results are there at once; what work takes time, wait_for_card knows.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override {
    return kType;
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto former = getDevice();
    setDevice(device);
    return former;
  }
  c10::Device getDevice() const override {
    return on(selected);
  }
  void setDevice(c10::Device device) const override {
    select_card(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    selected = device.index();
  }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return getStream(device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return getStream(stream.device());
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return card_count();
  }
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override {
    return true;
  }
  bool queryStream(const c10::Stream&) const override {
    return true;
  }
  void synchronizeStream(const c10::Stream&) const override {
    wait_for_card();
  }
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(c10::DeviceIndex) const override {
    wait_for_card();
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// Draws what the CPU's generator would; each card has its own.
struct Generator final : at::CPUGeneratorImpl {
  explicit Generator(c10::DeviceIndex card) {
    device_ = on(card);
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return card_count() > 0;
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return true;
  }
  c10::DeviceIndex deviceCount() const override {
    return card_count();
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return current_card();
  }
  void setCurrentDevice(c10::DeviceIndex card) const override {
    select_card(card);
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex card) const override {
    const auto former = current_card();
    select_card(card);
    return former;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex card) const override {
    return card < 0 ? current_card() : exchangeDevice(card);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex card) const override {
    static std::deque<at::Generator> generators = [] {
      std::deque<at::Generator> made;
      for (c10::DeviceIndex each = 0; each < card_count(); ++each) {
        made.push_back(at::make_generator<Generator>(each));
      }
      return made;
    }();
    return generators[checked(card < 0 ? current_card() : card)];
  }
  at::Generator getNewGenerator(c10::DeviceIndex card) const override {
    return at::make_generator<Generator>(checked(card < 0 ? current_card() : card));
  }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return c10::GetAllocator(c10::DeviceType::CPU);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    const c10::Device former = on(current_card());
    select_card(storage.device().index());
    auto grown = storage.allocator()->allocate(bytes);
    select_card(former.index());
    storage.allocator()->copy_data(grown.get(), storage.data(), std::min(bytes, storage.nbytes()));
    storage.set_data_ptr(std::move(grown));
    storage.set_nbytes(bytes);
  }
};

[[maybe_unused]] const bool are_hooks_registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  return true;
}();

} // namespace

c10::DeviceIndex card_count() {
  static const auto count = [] {
    const auto cards = number_from("SIMULATED_NPU_CARDS", 2);
    const char* visible = std::getenv("ASCEND_RT_VISIBLE_DEVICES");
    const int64_t chosen = visible ? 1 + std::count(visible, visible + std::strlen(visible), ',') : cards;
    return static_cast<c10::DeviceIndex>(std::min<int64_t>({cards, chosen, kMostCards}));
  }();
  return count;
}

c10::DeviceIndex current_card() {
  return selected;
}

void select_card(c10::DeviceIndex card) {
  selected = checked(card);
}

int64_t total_bytes() {
  static const auto bytes = number_from("SIMULATED_NPU_MEMORY", int64_t{1} << 40);
  return bytes;
}

int64_t allocated_bytes(c10::DeviceIndex card) {
  return allocated[checked(card)];
}

void throw_out_of_memory(c10::DeviceIndex card, int64_t wanted) {
  constexpr double mebibyte = 1 << 20;
  TORCH_CHECK(
      false, "NPU out of memory. Tried to allocate ", wanted / mebibyte, " MiB (NPU ", int(card), "; ",
      total_bytes() / mebibyte, " MiB total capacity; ", allocated[card] / mebibyte, " MiB already allocated)");
}

void lose_card() {
  is_lost = true;
  check_card();
}

void check_card() {
  TORCH_CHECK(!is_lost, "ACL stream synchronize failed, error code:507899: the simulated card was lost");
}

void keep_busy() {
  const char* text = std::getenv("SIMULATED_NPU_SLOW");
  const auto seconds = std::chrono::duration<double>(text ? std::stod(text) : 1.0);
  const std::lock_guard<std::mutex> lock(work_mutex);
  done_at = std::max(done_at, Clock::now()) + std::chrono::duration_cast<Clock::duration>(seconds);
}

void fail_later(const std::string& error) {
  const std::lock_guard<std::mutex> lock(work_mutex);
  failed_work = error;
}

void wait_for_card() {
  std::unique_lock<std::mutex> lock(work_mutex);
  const auto until = done_at;
  const auto error = std::exchange(failed_work, {});
  lock.unlock();
  std::this_thread::sleep_until(until);
  check_card();
  TORCH_CHECK(error.empty(), error);
}

TORCH_LIBRARY_FRAGMENT(npu_runtime, library) {
  library.def("card_count() -> int", [] { return int64_t{card_count()}; });
  library.def("current_card() -> int", [] { return int64_t{current_card()}; });
  library.def("select_card(int card) -> ()", [](int64_t card) { select_card(static_cast<c10::DeviceIndex>(card)); });
  library.def("wait_for_card() -> ()", [] { wait_for_card(); });
  library.def("default_generator(int card) -> Generator?", [](int64_t card) {
    return at::detail::getPrivateUse1Hooks().getDefaultGenerator(static_cast<c10::DeviceIndex>(card));
  });
  library.def("total_bytes() -> int", [] { return total_bytes(); });
  library.def("allocated_bytes(int card) -> int", [](int64_t card) {
    return allocated_bytes(static_cast<c10::DeviceIndex>(card));
  });
}

} // namespace npu
