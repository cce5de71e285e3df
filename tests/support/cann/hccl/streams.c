// How calls get to streams: one by one in the order of the program, several at once between HcclGroupStart and its end.

#define _GNU_SOURCE
#include "hccl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// What the runtime offers in addition to CANN's interface.
extern void simulated_fail_later(void *stream, int code, const char *message);
extern int aclrtLaunchHostFunc(void *stream, void (*function)(void *), void *argument);

// The error of a stream in which a collective failed: "The execution of the internal task times out".
enum { TASK_FAILED = 507048 };

static __thread int depth;
static __thread Task *first_sent, *first_other;

// Returns the fault that SIMULATED_CANN_FAULTS, as in `HcclAllReduce@1=wrong,HcclSend=hangs:3`, plants in a call.
static enum fault fault_of(const char *call, int device) {
  enum { MOST_FAULTS = 64 };
  static _Atomic int calls[MOST_FAULTS]; // that each fault has met so far
  const char *place = getenv("SIMULATED_CANN_FAULTS");
  for (int i = 0; place && *place && i < MOST_FAULTS; i++, place += strcspn(place, ","), place += *place == ',') {
    char name[64] = "", kind[32] = "";
    int card = device, only = 0;
    if (sscanf(place, "%63[^@=,]@%d=%31[^:,]:%d", name, &card, kind, &only) < 3) {
      card = device;
      if (sscanf(place, "%63[^@=,]=%31[^:,]:%d", name, kind, &only) < 2)
        continue;
    }
    if (strcmp(name, call) || card != device || (atomic_fetch_add(&calls[i], 1) + 1 != only && only))
      continue;
    return !strncmp(kind, "wrong", 5) ? WRONG : !strcmp(kind, "hangs") ? HANGS : !strcmp(kind, "slow") ? SLOW : NONE;
  }
  return NONE;
}

// Keeps what went wrong in a group, for its stream and for HcclGetCommAsyncError, and returns the result.
HcclResult report(Group *group, HcclResult result, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(group->message, sizeof group->message, format, arguments);
  va_end(arguments);
  atomic_store(&group->error, result);
  return result;
}

Task *new_task(Group *group, void *stream, const char *call, HcclResult (*run)(Task *)) {
  Task *task = calloc(1, sizeof *task);
  task->run = run;
  task->group = group;
  task->stream = stream;
  task->fault = fault_of(call, group->device);
  snprintf(task->offer.call, sizeof task->offer.call, "%s", call);
  return task;
}

static void run(void *argument) {
  Task *task = argument;
  if (task->fault == SLOW)
    usleep((useconds_t)(1e6 * seconds_of("SIMULATED_CANN_SLOW", 1)));
  if (task->run(task) != HCCL_SUCCESS)
    simulated_fail_later(task->stream, TASK_FAILED, task->group->message);
  free(task);
}

static HcclResult launch_now(Task *task) {
  return aclrtLaunchHostFunc(task->stream, run, task) ? HCCL_E_INTERNAL : HCCL_SUCCESS;
}

static void append(Task **first, Task *task) {
  while (*first)
    first = &(*first)->next;
  *first = task;
}

// Gives a call to its stream, or keeps it until the group of calls ends.
HcclResult launch(Task *task) {
  if (depth == 0)
    return launch_now(task);
  append(task->run == send_message ? &first_sent : &first_other, task);
  return HCCL_SUCCESS;
}

static HcclResult launch_all(Task **first) {
  HcclResult result = HCCL_SUCCESS;
  while (*first) {
    Task *task = *first;
    *first = task->next;
    HcclResult one = launch_now(task);
    result = result ? result : one;
  }
  return result;
}

HcclResult HcclGroupStart(void) {
  depth++;
  return HCCL_SUCCESS;
}

// Sends come first: no receive of this group keeps the other side waiting for them.
HcclResult HcclGroupEnd(void) {
  if (depth == 0)
    return HCCL_E_PARA;
  if (--depth)
    return HCCL_SUCCESS;
  HcclResult sent = launch_all(&first_sent), other = launch_all(&first_other);
  return sent ? sent : other;
}
