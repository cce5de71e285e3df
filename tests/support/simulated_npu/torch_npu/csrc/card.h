// The cards of the simulated NPU: memory of the host that torch takes for another device's.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <string>

namespace npu {

constexpr auto kType = c10::DeviceType::PrivateUse1;

// Cards that ASCEND_RT_VISIBLE_DEVICES leaves of the SIMULATED_NPU_CARDS there are, 2 where that is not set.
c10::DeviceIndex card_count();

// The card that this thread allocates on.
c10::DeviceIndex current_card();
void select_card(c10::DeviceIndex card);

inline c10::Device on(c10::DeviceIndex card) {
  return c10::Device(kType, card);
}

// Bytes of a card, by SIMULATED_NPU_MEMORY, and those of them that tensors hold.
int64_t total_bytes();
int64_t allocated_bytes(c10::DeviceIndex card);

// Raises what torch_npu raises where memory runs out.
[[noreturn]] void throw_out_of_memory(c10::DeviceIndex card, int64_t wanted);

// A card that was lost fails whatever is asked of it from then on.
void lose_card();
void check_card();

// Work that takes the card SIMULATED_NPU_SLOW seconds, 1 where that is not set, and the caller none.
void keep_busy();

// Has the next to wait for the card be told of an error.
void fail_later(const std::string& error);

// Waits until the card has done its work. Raises what went wrong in it.
void wait_for_card();

} // namespace npu
