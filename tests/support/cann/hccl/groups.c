// Communicators: how ranks come together, the names of their groups, and what a group says of itself.

#define _GNU_SOURCE
#include "hccl.h"
#include "cann.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The error of a call into HCCL that failed.
enum { NOT_JOINED = 507048 };

static pthread_mutex_t known = PTHREAD_MUTEX_INITIALIZER;
static Group *first;

HcclResult HcclGetRootInfo(HcclRootInfo *info) {
  static _Atomic uint32_t number;
  unsigned long random = 0;
  if (!info)
    return HCCL_E_PTR;
  if (getentropy(&random, sizeof random) != 0)
    return HCCL_E_SYSCALL;
  memset(info, 0, sizeof *info);
  snprintf(info->internal, sizeof info->internal, "%d-%u-%016lx", getpid(), atomic_fetch_add(&number, 1), random);
  return HCCL_SUCCESS;
}

static void remember(Group *group) {
  pthread_mutex_lock(&known);
  group->next = first;
  first = group;
  pthread_mutex_unlock(&known);
}

static HcclResult join(const char *key, uint32_t size, uint32_t rank, const HcclCommConfig *config, Group **result) {
  if (size == 0 || size > MAX_RANKS || rank >= size)
    return HCCL_E_PARA;
  Group *group = calloc(1, sizeof *group);
  group->size = size;
  group->rank = rank;
  group->timeout = seconds_of("HCCL_EXEC_TIMEOUT", 1836);
  if (config && config->timeout > 0)
    group->timeout = config->timeout;
  snprintf(group->name, sizeof group->name, "%s", config && config->name[0] ? config->name : key);
  pthread_mutex_init(&group->turn, NULL);
  pthread_mutex_init(&group->inbox, NULL);
  group->device = current_card();
  HcclResult joined = open_board(group, key);
  if (joined != HCCL_SUCCESS) {
    fail(NOT_JOINED, "%s", group->message);
    return joined;
  }
  remember(group);
  *result = group;
  return HCCL_SUCCESS;
}

HcclResult HcclCommInitRootInfoConfig(uint32_t size, const HcclRootInfo *info, uint32_t rank,
                                      const HcclCommConfig *config, Group **group) {
  return info && group ? join(info->internal, size, rank, config, group) : HCCL_E_PTR;
}

HcclResult HcclCommInitRootInfo(uint32_t size, const HcclRootInfo *info, uint32_t rank, Group **group) {
  return HcclCommInitRootInfoConfig(size, info, rank, NULL, group);
}

// Older torch_npu (to 2.9) must find it to be loaded. One process with a rank for each card is not simulated.
HcclResult HcclCommInitAll(uint32_t size, int32_t *cards, Group **groups) {
  return HCCL_E_NOT_SUPPORT;
}

// Makes a group of some ranks of a group, which call this with the same number.
HcclResult HcclCreateSubCommConfig(Group **whole, uint32_t size, uint32_t *ranks, uint64_t number, uint32_t rank,
                                   HcclCommConfig *config, Group **group) {
  char key[2 * NAME_LENGTH];
  if (!whole || !*whole || !ranks || !group)
    return HCCL_E_PTR;
  snprintf(key, sizeof key, "%.100s-%lu", (*whole)->name, (unsigned long)number);
  return join(key, size, rank, config, group);
}

HcclResult HcclCommDestroy(Group *group) {
  pthread_mutex_lock(&known);
  Group **place = &first;
  while (*place && *place != group)
    place = &(*place)->next;
  bool found = *place;
  if (found)
    *place = group->next;
  pthread_mutex_unlock(&known);
  if (!found)
    return HCCL_E_PARA;
  leave_board(group);
  free(group);
  return HCCL_SUCCESS;
}

// Finds a group of this process by its name, as the fused communication operators name it.
HcclResult HcomGetCommHandleByGroup(const char *name, Group **group) {
  pthread_mutex_lock(&known);
  *group = first;
  while (*group && strcmp((*group)->name, name))
    *group = (*group)->next;
  pthread_mutex_unlock(&known);
  return *group ? HCCL_SUCCESS : HCCL_E_NOT_FOUND;
}

HcclResult HcclGetCommName(Group *group, char *name) {
  snprintf(name, NAME_LENGTH, "%s", group->name);
  return HCCL_SUCCESS;
}

HcclResult HcclGetRankSize(Group *group, uint32_t *size) {
  *size = group->size;
  return HCCL_SUCCESS;
}

HcclResult HcclGetRankId(Group *group, uint32_t *rank) {
  *rank = group->rank;
  return HCCL_SUCCESS;
}

HcclResult HcclGetCommAsyncError(Group *group, HcclResult *error) {
  *error = atomic_load(&group->error);
  return HCCL_SUCCESS;
}

const char *HcclGetErrorString(HcclResult result) {
  switch (result) {
  case HCCL_SUCCESS: return "no error";
  case HCCL_E_PARA: return "parameter error";
  case HCCL_E_PTR: return "empty pointer";
  case HCCL_E_MEMORY: return "memory error";
  case HCCL_E_NOT_SUPPORT: return "not support feature";
  case HCCL_E_TIMEOUT: return "timeout";
  case HCCL_E_REMOTE: return "error cqe";
  default: return "internal error";
  }
}

// A group may have a name and a timeout of its own, and take its buffer's size and determinism: the first ten.
uint32_t HcclGetCommConfigCapability(void) {
  return 10;
}

HcclResult HcclSetConfig(int config, int value) {
  return HCCL_SUCCESS;
}

HcclResult HcclGetConfig(int config, int *value) {
  *value = 1;
  return HCCL_SUCCESS;
}

HcclResult HcclCommWorkingDevNicSet(Group *group, uint32_t *ranks, bool *backup, uint32_t count) {
  return HCCL_SUCCESS;
}

HcclResult HcclCommSuspend(Group *group) {
  return HCCL_SUCCESS;
}

HcclResult HcclCommResume(Group *group) {
  atomic_store(&group->error, HCCL_SUCCESS);
  return HCCL_SUCCESS;
}
