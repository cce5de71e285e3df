// Streams and events. A stream is done at a time of the clock; an error of its work stays on it until it is waited for.
#include "cann.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ERROR_BYTES = 512, STEP = 1000000 };

struct stream {
  struct stream* next;
  int32_t number;
  int card;
  uint64_t done_at;
  bool hangs;
  struct host_calls host_calls;
  aclError error;
  char message[ERROR_BYTES];
};

struct event {
  int32_t card;
  uint64_t done_at;
  bool hangs;
  struct stream* stream;
  uint64_t host_calls;
  bool is_recorded;
};

enum { READY = 0, NOT_READY = 1, RECORDED = 1, NOT_RECORDED = 0 };

static struct stream default_streams[MOST_CARDS];
static struct stream* created = NULL;
static int32_t last_number = 0;

uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static struct stream* stream_of(void* stream) {
  if (stream != NULL) {
    return stream;
  }
  struct stream* found = &default_streams[current_card()];
  found->card = current_card();
  return found;
}

static bool is_done(uint64_t done_at, bool hangs) {
  return !hangs && done_at <= now();
}

// Waits until what a time and a flag say is done; they are read anew, as work may be added meanwhile.
static bool wait_until(const uint64_t* done_at, const bool* hangs, int milliseconds) {
  const uint64_t end = milliseconds < 0 ? UINT64_MAX : now() + (uint64_t)milliseconds * STEP;
  for (;;) {
    pthread_mutex_lock(&cann_lock);
    const bool done = is_done(*done_at, *hangs);
    const uint64_t until = *hangs ? UINT64_MAX : *done_at;
    pthread_mutex_unlock(&cann_lock);
    const uint64_t time = now();
    if (done || time >= end) {
      return done;
    }
    const uint64_t last = until < end ? until : end;
    const uint64_t rest = last > time ? last - time : 1;
    const uint64_t longest = 50u * STEP;
    const struct timespec pause = {0, (long)(rest < longest ? rest : longest)};
    nanosleep(&pause, NULL);
  }
}

aclError wait_for_stream(struct stream* stream, int milliseconds) {
  if (!wait_for_host_calls(&stream->host_calls, stream->host_calls.given, milliseconds) ||
      !wait_until(&stream->done_at, &stream->hangs, milliseconds)) {
    return fail(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "EE1002: Stream synchronize timeout. Stream %d is not done", stream->number);
  }
  const aclError lost = check_card(stream->card);
  if (lost != ACL_SUCCESS) {
    return lost;
  }
  pthread_mutex_lock(&cann_lock);
  const aclError error = stream->error;
  stream->error = ACL_SUCCESS;
  pthread_mutex_unlock(&cann_lock);
  return error == ACL_SUCCESS ? ACL_SUCCESS : fail(error, "%s", stream->message);
}

// What kernels of the host do to a stream.

void simulated_keep_busy(void* handle, double seconds) {
  struct stream* stream = stream_of(handle);
  pthread_mutex_lock(&cann_lock);
  const uint64_t start = stream->done_at > now() ? stream->done_at : now();
  stream->done_at = start + (uint64_t)(seconds * 1e9);
  pthread_mutex_unlock(&cann_lock);
}

void simulated_wait_for_host_calls(void* handle) {
  struct stream* stream = stream_of(handle);
  wait_for_host_calls(&stream->host_calls, stream->host_calls.given, -1);
}

void simulated_hang(void* handle) {
  struct stream* stream = stream_of(handle);
  pthread_mutex_lock(&cann_lock);
  stream->hangs = true;
  pthread_mutex_unlock(&cann_lock);
}

void simulated_fail_later(void* handle, int code, const char* message) {
  struct stream* stream = stream_of(handle);
  pthread_mutex_lock(&cann_lock);
  stream->error = code;
  strncpy(stream->message, message, ERROR_BYTES - 1);
  pthread_mutex_unlock(&cann_lock);
}

// Streams.

aclError aclrtCreateStreamWithConfig(void** handle, uint32_t priority, uint32_t flag) {
  const aclError error = check_current_card();
  if (error != ACL_SUCCESS) {
    return error;
  }
  struct stream* stream = calloc(1, sizeof *stream);
  pthread_mutex_lock(&cann_lock);
  stream->card = current_card();
  stream->number = ++last_number;
  stream->next = created;
  created = stream;
  pthread_mutex_unlock(&cann_lock);
  *handle = stream;
  return ACL_SUCCESS;
}

aclError aclrtCreateStream(void** handle) {
  return aclrtCreateStreamWithConfig(handle, 0, 0);
}

// A stream is forgotten and not freed: an event or a thread may still name it.
aclError aclrtDestroyStream(void* handle) {
  pthread_mutex_lock(&cann_lock);
  for (struct stream** place = &created; *place != NULL; place = &(*place)->next) {
    if (*place == handle) {
      *place = (*place)->next;
      break;
    }
  }
  pthread_mutex_unlock(&cann_lock);
  return ACL_SUCCESS;
}

aclError aclrtDestroyStreamForce(void* handle) {
  return aclrtDestroyStream(handle);
}

aclError aclrtStreamGetId(void* handle, int32_t* number) {
  *number = stream_of(handle)->number;
  return ACL_SUCCESS;
}

aclError aclrtStreamQuery(void* handle, int* status) {
  const struct stream* stream = stream_of(handle);
  const aclError error = check_card(stream->card);
  if (error == ACL_SUCCESS) {
    pthread_mutex_lock(&cann_lock);
    const bool done = is_done(stream->done_at, stream->hangs);
    *status = done && stream->host_calls.made >= stream->host_calls.given ? READY : NOT_READY;
    pthread_mutex_unlock(&cann_lock);
  }
  return error;
}

aclError aclrtSynchronizeStream(void* handle) {
  return wait_for_stream(stream_of(handle), -1);
}

aclError aclrtSynchronizeStreamWithTimeout(void* handle, int32_t milliseconds) {
  return wait_for_stream(stream_of(handle), milliseconds);
}

aclError aclrtSynchronizeDeviceWithTimeout(int32_t milliseconds) {
  const int card = current_card();
  aclError error = wait_for_stream(stream_of(NULL), milliseconds);
  for (struct stream* each = created; each != NULL && error == ACL_SUCCESS; each = each->next) {
    error = each->card == card ? wait_for_stream(each, milliseconds) : ACL_SUCCESS;
  }
  return error;
}

aclError aclrtSynchronizeDevice(void) {
  return aclrtSynchronizeDeviceWithTimeout(-1);
}

ACCEPTED(aclrtSetStreamFailureMode)
ACCEPTED(aclrtSetStreamAttribute)
ACCEPTED(aclrtSetStreamOverflowSwitch)

aclError aclrtGetStreamOverflowSwitch(void* stream, uint32_t* flag) {
  *flag = 0;
  return ACL_SUCCESS;
}

// Functions of the host, which a thread of the stream calls one after another.

aclError aclrtLaunchHostFunc(void* handle, void (*function)(void*), void* data) {
  struct stream* stream = stream_of(handle);
  const aclError error = check_card(stream->card);
  if (error == ACL_SUCCESS) {
    give_host_call(&stream->host_calls, stream->card, function, data);
  }
  return error;
}

aclError aclrtLaunchCallback(void (*function)(void*), void* data, int block_type, void* stream) {
  return aclrtLaunchHostFunc(stream, function, data);
}

ACCEPTED(aclrtSubscribeReport)
ACCEPTED(aclrtUnSubscribeReport)
ACCEPTED(aclrtProcessReport)

// Events.

aclError aclrtCreateEventExWithFlag(void** handle, uint32_t flag) {
  struct event* event = calloc(1, sizeof *event);
  event->card = current_card();
  *handle = event;
  return ACL_SUCCESS;
}

aclError aclrtCreateEventWithFlag(void** handle, uint32_t flag) {
  return aclrtCreateEventExWithFlag(handle, flag);
}

aclError aclrtDestroyEvent(void* event) {
  free(event);
  return ACL_SUCCESS;
}

aclError aclrtRecordEvent(void* handle, void* on) {
  struct event* event = handle;
  struct stream* stream = stream_of(on);
  const aclError error = check_card(stream->card);
  if (error == ACL_SUCCESS) {
    pthread_mutex_lock(&cann_lock);
    event->stream = stream;
    event->host_calls = stream->host_calls.given;
    event->done_at = stream->done_at > now() ? stream->done_at : now();
    event->hangs = stream->hangs;
    event->is_recorded = true;
    pthread_mutex_unlock(&cann_lock);
  }
  return error;
}

aclError aclrtResetEvent(void* handle, void* stream) {
  struct event* event = handle;
  pthread_mutex_lock(&cann_lock);
  event->is_recorded = false;
  pthread_mutex_unlock(&cann_lock);
  return ACL_SUCCESS;
}

// A stream that waits for one that failed fails as well.
static void pass_error(const struct stream* failed, struct stream* waiting) {
  pthread_mutex_lock(&cann_lock);
  if (failed->error != ACL_SUCCESS) {
    waiting->error = failed->error;
    memcpy(waiting->message, failed->message, ERROR_BYTES);
  }
  pthread_mutex_unlock(&cann_lock);
}

// What a stream computes is computed at once: it is the host that waits for a stream's functions of the host.
aclError aclrtStreamWaitEvent(void* on, void* handle) {
  struct stream* stream = stream_of(on);
  const struct event* event = handle;
  const aclError error = check_card(stream->card);
  if (error == ACL_SUCCESS && event->is_recorded) {
    if (event->stream != stream) {
      wait_for_host_calls(&event->stream->host_calls, event->host_calls, -1);
      pass_error(event->stream, stream);
    }
    pthread_mutex_lock(&cann_lock);
    stream->done_at = stream->done_at > event->done_at ? stream->done_at : event->done_at;
    stream->hangs |= event->hangs;
    pthread_mutex_unlock(&cann_lock);
  }
  return error;
}

aclError aclrtSynchronizeEvent(void* handle) {
  const struct event* event = handle;
  if (event->is_recorded) {
    wait_for_host_calls(&event->stream->host_calls, event->host_calls, -1);
    wait_until(&event->done_at, &event->hangs, -1);
  }
  return check_card(event->card);
}

static bool is_event_done(const struct event* event) {
  pthread_mutex_lock(&cann_lock);
  const bool called = !event->is_recorded || event->stream->host_calls.made >= event->host_calls;
  const bool done = !event->is_recorded || (called && is_done(event->done_at, event->hangs));
  pthread_mutex_unlock(&cann_lock);
  return done;
}

aclError aclrtQueryEventStatus(void* event, int* status) {
  *status = is_event_done(event) ? RECORDED : NOT_RECORDED;
  return check_card(((struct event*)event)->card);
}

aclError aclrtQueryEventWaitStatus(void* event, int* status) {
  *status = is_event_done(event) ? READY : NOT_READY;
  return check_card(((struct event*)event)->card);
}

aclError aclrtEventElapsedTime(float* milliseconds, void* start, void* end) {
  *milliseconds = (float)((double)(((struct event*)end)->done_at - ((struct event*)start)->done_at) / 1e6);
  return ACL_SUCCESS;
}

aclError aclrtEventGetTimestamp(void* event, uint64_t* microseconds) {
  *microseconds = ((struct event*)event)->done_at / 1000;
  return ACL_SUCCESS;
}
