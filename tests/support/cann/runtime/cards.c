// Cards and contexts. A context is a card's: each has one.
#include "cann.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int physical[MOST_CARDS];
static int count = -1;
static char contexts[MOST_CARDS];
static __thread int selected = -1;

// The lost cards, a bit each; kernels of the host look here before they compute.
uint32_t simulated_lost_cards = 0;

// Reads which of SIMULATED_CANN_CARDS cards ASCEND_RT_VISIBLE_DEVICES leaves, up to the first that there is not.
static void count_cards(void) {
  const int all = (int)number_from("SIMULATED_CANN_CARDS", 2);
  const int most = all < MOST_CARDS ? all : MOST_CARDS;
  const char* visible = getenv("ASCEND_RT_VISIBLE_DEVICES");
  int found = 0;
  if (visible == NULL || *visible == '\0') {
    for (; found < most; ++found) {
      physical[found] = found;
    }
  }
  for (const char* place = visible; place != NULL && *place != '\0' && found < MOST_CARDS;) {
    char* end = NULL;
    const long card = strtol(place, &end, 10);
    if (end == place || card < 0 || card >= most) {
      break;
    }
    physical[found++] = (int)card;
    place = *end == ',' ? end + 1 : NULL;
  }
  count = found;
}

int card_count(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, count_cards);
  return count;
}

int current_card(void) {
  return selected < 0 ? 0 : selected;
}

aclError select_card(int card) {
  if (card < 0 || card >= card_count()) {
    return fail(ACL_ERROR_RT_INVALID_DEVICEID, "EE1001: device id %d is not one of %d devices", card, card_count());
  }
  selected = card;
  return ACL_SUCCESS;
}

aclError check_card(int card) {
  if (simulated_lost_cards >> card & 1) {
    return fail(
        ACL_ERROR_RT_LOST_HEARTBEAT, "EE9999: Inner Error! the heartbeat of the simulated card %d is lost", card);
  }
  return ACL_SUCCESS;
}

aclError check_current_card(void) {
  return check_card(current_card());
}

void simulated_lose_card(int card) {
  __atomic_fetch_or(&simulated_lost_cards, 1u << card, __ATOMIC_SEQ_CST);
}

aclError aclInit(const char* configuration) {
  return ACL_SUCCESS;
}

ACCEPTED(aclFinalize)

aclError aclrtGetDeviceCount(uint32_t* number) {
  *number = (uint32_t)card_count();
  return ACL_SUCCESS;
}

aclError aclrtSetDevice(int32_t card) {
  const aclError error = card >= 0 && card < card_count() ? check_card(card) : ACL_SUCCESS;
  return error != ACL_SUCCESS ? error : select_card(card);
}

aclError aclrtResetDevice(int32_t card) {
  return ACL_SUCCESS;
}

aclError aclrtGetDevice(int32_t* card) {
  if (selected < 0) {
    return fail(ACL_ERROR_RT_CONTEXT_NULL, "EE1002: no device was set in this thread");
  }
  *card = selected;
  return ACL_SUCCESS;
}

aclError aclrtGetLogicDevIdByUserDevId(const int32_t card, int32_t* const number) {
  *number = physical[card];
  return ACL_SUCCESS;
}

aclError aclrtGetPrimaryCtxState(int32_t card, uint32_t* flags, int32_t* is_active) {
  *flags = 0;
  *is_active = 1;
  return ACL_SUCCESS;
}

aclError aclrtGetCurrentContext(void** context) {
  if (selected < 0) {
    return fail(ACL_ERROR_RT_CONTEXT_NULL, "EE1002: no context was set in this thread");
  }
  *context = &contexts[selected];
  return ACL_SUCCESS;
}

aclError aclrtSetCurrentContext(void* context) {
  return select_card((int)((char*)context - contexts));
}

aclError aclrtDeviceCanAccessPeer(int32_t* can, int32_t card, int32_t peer) {
  *can = card != peer;
  return ACL_SUCCESS;
}

ACCEPTED(aclrtDeviceEnablePeerAccess)

const char* aclrtGetSocName(void) {
  return "Ascend910B1";
}

aclError aclGetDeviceCapability(uint32_t card, int what, int64_t* value) {
  enum { L2_SIZE = 2 };
  *value = what == L2_SIZE ? 192 << 20 : 24;
  return ACL_SUCCESS;
}

aclError aclrtDeviceGetUuid(int32_t card, char* uuid) {
  memset(uuid, 0, 16);
  snprintf(uuid, 16, "simulated-%d", physical[card]);
  return ACL_SUCCESS;
}

aclError aclrtDeviceGetBareTgid(int32_t* process) {
  *process = 0;
  return ACL_SUCCESS;
}
