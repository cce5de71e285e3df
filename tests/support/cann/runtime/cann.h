// What the files of the simulated CANN share. Functions have the names and arguments that CANN documents; values are
// computed by the host when a kernel is launched, and only when they count as done is simulated: by a clock a stream.
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int aclError;

enum {
  ACL_SUCCESS = 0,
  ACL_ERROR_INVALID_PARAM = 100000,
  ACL_ERROR_OP_NOT_FOUND = 100024,
  ACL_ERROR_RT_PARAM_INVALID = 107000,
  ACL_ERROR_RT_INVALID_DEVICEID = 107001,
  ACL_ERROR_RT_CONTEXT_NULL = 107002,
  ACL_ERROR_RT_FEATURE_NOT_SUPPORT = 207000,
  ACL_ERROR_RT_MEMORY_ALLOCATION = 207001,
  ACL_ERROR_RT_LOST_HEARTBEAT = 507010,
  ACL_ERROR_RT_AICORE_EXCEPTION = 507015,
  ACL_ERROR_RT_STREAM_SYNC_TIMEOUT = 507046,
};

enum { MOST_CARDS = 32, PATH_BYTES = 4096 };

// A function that does nothing here, whatever its arguments.
#define ACCEPTED(name) \
  aclError name(void) { \
    return ACL_SUCCESS; \
  }

// One lock for everything: calls are short, and a wait lets go of it.
extern pthread_mutex_t cann_lock;

// errors.c: keeps the message for aclGetRecentErrMsg, returns the code.
aclError fail(aclError code, const char* format, ...) __attribute__((format(printf, 2, 3)));

// cards.c: cards count as the process sees them.
int card_count(void);
int current_card(void);
// Selects the thread's card. Returns an error where there is no such card.
aclError select_card(int card);
// Returns the error of a card that was lost, success for one that works.
aclError check_card(int card);
aclError check_current_card(void);

// host_calls.c: functions of the host that a stream calls in order, in a thread of its own.
struct host_call;
struct host_calls {
  struct host_call* first;
  uint64_t given, made;
  bool has_thread;
  int card;
};
void give_host_call(struct host_calls* calls, int card, void (*function)(void*), void* data);
// Waits until so many of them were made. Returns whether they were, before a time that may be endless (-1).
bool wait_for_host_calls(const struct host_calls* calls, uint64_t number, int milliseconds);

// streams.c
struct stream;
// The time of the clock by which streams are done, in nanoseconds.
uint64_t now(void);
// Waits for a stream, for a card's default one where it is null.
aclError wait_for_stream(struct stream* stream, int milliseconds);

// settings.c: a number from the environment.
double number_from(const char* variable, double otherwise);

// Tensors of operators that torch_npu has CANN compile.
enum { MOST_DIMENSIONS = 8 };
struct description {
  int dimensions;
  int64_t sizes[MOST_DIMENSIONS];
};
struct buffer {
  char* data;
  size_t bytes;
};

// host_operators.c: computes an operator, or returns false for one that it does not know.
bool computes_operator(
    const char* operator, const struct description* const descriptions[], const struct buffer* const inputs[],
    const struct description* const output_descriptions[], const struct buffer* const outputs[]);
