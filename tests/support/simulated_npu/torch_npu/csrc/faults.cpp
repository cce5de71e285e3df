#include "faults.h"

#include "card.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <sstream>

namespace npu {
namespace {

const std::map<std::string, Fault> kNames{
    {"missing", Fault::missing},
    {"falls-back", Fault::falls_back},
    {"fails", Fault::fails},
    {"fails-later", Fault::fails_later},
    {"out-of-memory", Fault::out_of_memory},
    {"loses-card", Fault::loses_card},
    {"kills", Fault::kills},
    {"hangs", Fault::hangs},
    {"slow", Fault::slow},
    {"wrong", Fault::wrong},
};

std::map<std::string, Fault> planted() {
  std::map<std::string, Fault> faults;
  const char* text = std::getenv("SIMULATED_NPU_FAULTS");
  std::istringstream words(text ? text : "");
  for (std::string word; std::getline(words, word, ',');) {
    const auto equals = word.find('=');
    faults["aten::" + word.substr(0, equals)] = kNames.at(word.substr(equals + 1));
  }
  return faults;
}

} // namespace

Fault fault_of(const std::string& operation) {
  static const auto faults = planted();
  const auto found = faults.find(operation);
  return found == faults.end() ? Fault::none : found->second;
}

void fail_before(Fault fault, const std::string& operation) {
  switch (fault) {
    case Fault::missing:
      TORCH_CHECK_NOT_IMPLEMENTED(
          false, "Could not run '", operation, "' with arguments from the 'npu' backend.");
    case Fault::fails:
      TORCH_CHECK(false, "call ", operation, " failed, detail: EZ9999: Inner Error! error code is 561000");
    case Fault::fails_later:
      fail_later("ACL stream synchronize failed, error code:507015: " + operation);
      return;
    case Fault::out_of_memory:
      throw_out_of_memory(current_card(), int64_t{1} << 34);
    case Fault::loses_card:
      lose_card();
      return;
    case Fault::kills:
      std::raise(SIGSEGV);
      return;
    case Fault::hangs:
      pause();
      return;
    case Fault::none:
    case Fault::falls_back:
    case Fault::slow:
    case Fault::wrong:
      return;
  }
}

void do_after(Fault fault, torch::jit::Stack& results) {
  if (fault == Fault::slow) {
    keep_busy();
  }
  if (fault == Fault::wrong) {
    const auto result = results.back().toTensor();
    result.as_strided({}, {}, result.storage_offset()).add_(1);
  }
}

} // namespace npu
