// Faults that SIMULATED_NPU_FAULTS plants, as in "exp=wrong,log=out-of-memory".
#pragma once

#include <ATen/core/stack.h>

#include <string>

namespace npu {

enum class Fault { none, missing, falls_back, fails, fails_later, out_of_memory, loses_card, kills, hangs, slow, wrong };

// The fault of an operation such as "aten::exp".
Fault fault_of(const std::string& operation);

// Does what a fault does in place of a result.
void fail_before(Fault fault, const std::string& operation);

// Adds one to the first element of the first result where the fault is a wrong one; a slow card is busy from then on.
void do_after(Fault fault, torch::jit::Stack& results);

} // namespace npu
