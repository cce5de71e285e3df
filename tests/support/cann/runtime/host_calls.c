// Functions of the host that a stream is to call, such as a collective that waits for other processes.
#include "cann.h"

#include <stdlib.h>
#include <time.h>

struct host_call {
  struct host_call* next;
  void (*function)(void*);
  void* data;
};

// How many functions streams have yet to call; kernels of the host look here before they compute.
uint32_t simulated_host_calls = 0;

static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void* make_calls(void* argument) {
  struct host_calls* calls = argument;
  select_card(calls->card);
  pthread_mutex_lock(&cann_lock);
  for (;;) {
    while (calls->first == NULL) {
      pthread_cond_wait(&changed, &cann_lock);
    }
    struct host_call* call = calls->first;
    pthread_mutex_unlock(&cann_lock);
    call->function(call->data);
    pthread_mutex_lock(&cann_lock);
    calls->first = call->next;
    ++calls->made;
    __atomic_fetch_sub(&simulated_host_calls, 1, __ATOMIC_SEQ_CST);
    free(call);
    pthread_cond_broadcast(&changed);
  }
  return NULL;
}

void give_host_call(struct host_calls* calls, int card, void (*function)(void*), void* data) {
  struct host_call* call = malloc(sizeof *call);
  *call = (struct host_call){NULL, function, data};
  pthread_mutex_lock(&cann_lock);
  struct host_call** place = &calls->first;
  while (*place != NULL) {
    place = &(*place)->next;
  }
  *place = call;
  ++calls->given;
  __atomic_fetch_add(&simulated_host_calls, 1, __ATOMIC_SEQ_CST);
  if (!calls->has_thread) {
    pthread_t thread;
    calls->has_thread = true;
    calls->card = card;
    pthread_create(&thread, NULL, make_calls, calls);
    pthread_detach(thread);
  }
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&cann_lock);
}

bool wait_for_host_calls(const struct host_calls* calls, uint64_t number, int milliseconds) {
  struct timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += milliseconds < 0 ? 1000000000 : milliseconds / 1000;
  int error = 0;
  pthread_mutex_lock(&cann_lock);
  while (calls->made < number && error == 0) {
    error = pthread_cond_timedwait(&changed, &cann_lock, &end);
  }
  const bool all = calls->made >= number;
  pthread_mutex_unlock(&cann_lock);
  return all;
}
