// Messages between two ranks. A sender never waits: what it sends lies in the receiver's mailbox until it is fetched.

#include "hccl.h"

#include <unistd.h>

// In a mailbox, each message begins at a page with this.
typedef struct {
  uint64_t count;
  int32_t type;
} Heading;

static uint64_t pages(uint64_t bytes) {
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page;
}

HcclResult send_message(Task *task) {
  Group *group = task->group;
  Heading heading = {task->offer.counts[0], task->offer.type};
  uint64_t bytes = heading.count * size_of(heading.type);
  _Atomic uint64_t *sent = &group->board->seats[group->rank].sent[task->peer];
  int64_t place = region_of_mailbox(group->rank, task->peer) + (int64_t)atomic_load(sent);
  if (task->fault == HANGS)
    return HCCL_SUCCESS;
  HcclResult result = put_bytes(group, place, &heading, sizeof heading);
  if (result == HCCL_SUCCESS)
    result = put_bytes(group, place + (int64_t)sizeof heading, task->given, bytes);
  if (result != HCCL_SUCCESS)
    return report(group, result, "no memory for a message of %lu bytes", (unsigned long)bytes);
  atomic_fetch_add(sent, pages(sizeof heading + bytes));
  ring(group);
  return HCCL_SUCCESS;
}

static HcclResult fetch(Task *task) {
  Group *group = task->group;
  uint64_t *received = &group->received[task->peer], count = task->offer.counts[0];
  HcclResult result = wait_for_bytes(group, task->peer, *received + 1);
  if (result != HCCL_SUCCESS)
    return result;
  int64_t place = region_of_mailbox(task->peer, group->rank) + (int64_t)*received;
  Heading heading;
  result = get_bytes(group, place, &heading, sizeof heading);
  if (result != HCCL_SUCCESS)
    return report(group, result, "a message cannot be read");
  if (heading.count != count || size_of(heading.type) != size_of(task->offer.type))
    return report(group, HCCL_E_PARA,
                      "EI0005: The arguments for collective communication are inconsistent between ranks: rank %u "
                      "sends %lu elements of type %d, rank %u receives %lu of type %d",
                      task->peer, (unsigned long)heading.count, heading.type, group->rank, (unsigned long)count,
                      task->offer.type);
  uint64_t bytes = count * size_of(task->offer.type);
  result = get_bytes(group, place + (int64_t)sizeof heading, task->taken, bytes);
  drop_bytes(group, place, pages(sizeof heading + bytes));
  *received += pages(sizeof heading + bytes);
  if (task->fault == WRONG)
    spoil(task->taken, count, task->offer.type);
  return result;
}

HcclResult receive_message(Task *task) {
  pthread_mutex_lock(&task->group->inbox);
  HcclResult result = fetch(task);
  pthread_mutex_unlock(&task->group->inbox);
  return result;
}

static HcclResult message(const char *call, void *buffer, uint64_t count, HcclDataType type, uint32_t peer,
                          Group *group, void *stream) {
  if (!group || (!buffer && count))
    return HCCL_E_PTR;
  if (peer >= group->size || peer == group->rank)
    return HCCL_E_PARA;
  bool sends = call[4] == 'S';
  Task *task = new_task(group, stream, call, sends ? send_message : receive_message);
  task->given = task->taken = buffer;
  task->offer.type = type;
  task->offer.counts[0] = count;
  task->peer = peer;
  return launch(task);
}

HcclResult HcclSend(void *buffer, uint64_t count, HcclDataType type, uint32_t peer, Group *group, void *stream) {
  return message("HcclSend", buffer, count, type, peer, group, stream);
}

HcclResult HcclRecv(void *buffer, uint64_t count, HcclDataType type, uint32_t peer, Group *group, void *stream) {
  return message("HcclRecv", buffer, count, type, peer, group, stream);
}

HcclResult HcclGroupStart(void);
HcclResult HcclGroupEnd(void);

HcclResult HcclBatchSendRecv(HcclSendRecvItem *items, uint32_t count, Group *group, void *stream) {
  HcclResult result = HCCL_SUCCESS;
  HcclGroupStart();
  for (uint32_t i = 0; i < count && result == HCCL_SUCCESS; i++) {
    HcclSendRecvItem *item = &items[i];
    result = (item->receives ? HcclRecv : HcclSend)(item->buffer, item->count, item->type, item->peer, group, stream);
  }
  HcclResult end = HcclGroupEnd();
  return result ? result : end;
}
