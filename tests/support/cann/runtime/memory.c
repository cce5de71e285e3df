// A card's memory is the host's, counted, with a limit: SIMULATED_CANN_MEMORY bytes, by default 64 GiB.
#include "cann.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 512 };

// Lies before each block.
struct block {
  size_t bytes;
  int card;
};

static size_t used[MOST_CARDS];

static size_t all_bytes(void) {
  return (size_t)number_from("SIMULATED_CANN_MEMORY", (double)(64ull << 30));
}

// Counts bytes as a card's. Returns an error where it has fewer left.
aclError reserve_memory(int card, size_t bytes) {
  pthread_mutex_lock(&cann_lock);
  const bool fits = used[card] + bytes <= all_bytes();
  used[card] += fits ? bytes : 0;
  const size_t left = all_bytes() - used[card];
  pthread_mutex_unlock(&cann_lock);
  if (!fits) {
    return fail(
        ACL_ERROR_RT_MEMORY_ALLOCATION, "EL0004: Failed to allocate memory. %zu bytes of device %d are left of %zu, %zu were asked for",
        left, card, all_bytes(), bytes);
  }
  return ACL_SUCCESS;
}

void release_memory(int card, size_t bytes) {
  pthread_mutex_lock(&cann_lock);
  used[card] -= bytes;
  pthread_mutex_unlock(&cann_lock);
}

aclError aclrtMalloc(void** memory, size_t bytes, int policy) {
  const int card = current_card();
  aclError error = check_card(card);
  if (error != ACL_SUCCESS || (error = reserve_memory(card, bytes)) != ACL_SUCCESS) {
    return error;
  }
  char* block = aligned_alloc(ALIGNMENT, (bytes + 2 * ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  if (block == NULL) {
    release_memory(card, bytes);
    return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "EL0004: Failed to allocate memory. The host has not %zu bytes", bytes);
  }
  *(struct block*)block = (struct block){bytes, card};
  *memory = block + ALIGNMENT;
  return ACL_SUCCESS;
}

aclError aclrtMallocAlign32(void** memory, size_t bytes, int policy) {
  return aclrtMalloc(memory, bytes, policy);
}

aclError aclrtFree(void* memory) {
  if (memory != NULL) {
    struct block* block = (struct block*)((char*)memory - ALIGNMENT);
    release_memory(block->card, block->bytes);
    free(block);
  }
  return ACL_SUCCESS;
}

aclError aclrtMallocHost(void** memory, size_t bytes) {
  *memory = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  return *memory != NULL ? ACL_SUCCESS : fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "EL0004: the host has not %zu bytes", bytes);
}

aclError aclrtMallocHostWithCfg(void** memory, uint64_t bytes, void* configuration) {
  return aclrtMallocHost(memory, bytes);
}

aclError aclrtFreeHost(void* memory) {
  free(memory);
  return ACL_SUCCESS;
}

aclError aclrtGetMemInfo(int attribute, size_t* left, size_t* all) {
  const aclError error = check_current_card();
  if (error == ACL_SUCCESS) {
    pthread_mutex_lock(&cann_lock);
    *all = all_bytes();
    *left = *all - used[current_card()];
    pthread_mutex_unlock(&cann_lock);
  }
  return error;
}

aclError aclrtGetDeviceInfo(uint32_t card, int attribute, int64_t* value) {
  enum { TOTAL_GLOBAL_MEMORY = 301, L2_CACHE = 302, FIRST_OF_IDENTITY = 401 };
  const int64_t cores = 24, cache_bytes = 192 << 20;
  *value = attribute == TOTAL_GLOBAL_MEMORY ? (int64_t)all_bytes()
      : attribute == L2_CACHE               ? cache_bytes
      : attribute >= FIRST_OF_IDENTITY      ? card
                                            : cores;
  return ACL_SUCCESS;
}

// A copy that is not asynchronous waits for nothing: streams' values are there at once.
aclError aclrtMemcpy(void* to, size_t most, const void* from, size_t bytes, int kind) {
  const aclError error = check_current_card();
  if (error == ACL_SUCCESS) {
    memmove(to, from, bytes);
  }
  return error;
}

aclError aclrtMemcpyAsync(void* to, size_t most, const void* from, size_t bytes, int kind, void* stream) {
  return aclrtMemcpy(to, most, from, bytes, kind);
}

aclError aclrtMemcpyAsyncWithCondition(void* to, size_t most, const void* from, size_t bytes, int kind, void* stream) {
  return aclrtMemcpy(to, most, from, bytes, kind);
}

aclError aclrtMemcpyBatch(
    void** to, size_t* most, void** from, size_t* bytes, size_t number, void* attributes, size_t* indices,
    size_t attribute_count, size_t* failed) {
  for (size_t each = 0; each < number; ++each) {
    const aclError error = aclrtMemcpy(to[each], most[each], from[each], bytes[each], 0);
    if (error != ACL_SUCCESS) {
      *failed = each;
      return error;
    }
  }
  return ACL_SUCCESS;
}

aclError aclrtMemcpyBatchAsync(
    void** to, size_t* most, void** from, size_t* bytes, size_t number, void* attributes, size_t* indices,
    size_t attribute_count, size_t* failed, void* stream) {
  return aclrtMemcpyBatch(to, most, from, bytes, number, attributes, indices, attribute_count, failed);
}

aclError aclrtMemset(void* memory, size_t most, int32_t value, size_t bytes) {
  const aclError error = check_current_card();
  if (error == ACL_SUCCESS) {
    memset(memory, value, bytes);
  }
  return error;
}

aclError aclrtMemsetAsync(void* memory, size_t most, int32_t value, size_t bytes, void* stream) {
  return aclrtMemset(memory, most, value, bytes);
}

ACCEPTED(aclrtHostRegister)
ACCEPTED(aclrtHostRegisterV2)
ACCEPTED(aclrtHostUnregister)
