// Collectives: each rank offers parts of its buffer to the others, all meet, and each takes what it was offered.

#include "hccl.h"

#include <stdlib.h>
#include <string.h>

static uint64_t bytes_offered(const Offer *offer, uint32_t size) {
  uint64_t end = 0;
  for (uint32_t rank = 0; rank < size; rank++)
    if (offer->counts[rank] && offer->starts[rank] + offer->counts[rank] > end)
      end = offer->starts[rank] + offer->counts[rank];
  return end * size_of(offer->type);
}

// Checks that another rank makes the same call and offers as much as is taken.
static HcclResult check(Task *task, uint32_t rank) {
  Group *group = task->group;
  const Offer *mine = &task->offer, *other = &group->board->seats[rank].offer;
  if (strcmp(mine->call, other->call) || mine->type != other->type || mine->operation != other->operation ||
    mine->root != other->root || other->counts[group->rank] != task->take_counts[rank])
    return report(group, HCCL_E_PARA,
                      "EI0005: The arguments for collective communication are inconsistent between ranks: rank %u "
                      "calls %s (type %d, operation %d, root %u) and takes %lu elements, rank %u calls %s (type %d, "
                      "operation %d, root %u) and gives %lu",
                      group->rank, mine->call, mine->type, mine->operation, mine->root,
                      (unsigned long)task->take_counts[rank], rank, other->call, other->type, other->operation,
                      other->root, (unsigned long)other->counts[group->rank]);
  return HCCL_SUCCESS;
}

// Takes what a rank offers to this one; the first part of a reduction is copied, others are combined with it.
static HcclResult take(Task *task, uint32_t rank, bool first) {
  Group *group = task->group;
  const Offer *other = &group->board->seats[rank].offer;
  uint64_t size = size_of(other->type), count = task->take_counts[rank];
  int64_t place = region_of_rank(rank) + (int64_t)(other->starts[group->rank] * size);
  char *into = (char *)task->taken + task->take_starts[rank] * size;
  if (!task->reduces || first)
    return get_bytes(group, place, into, count * size);
  void *part = malloc(count * size + 1);
  HcclResult result = get_bytes(group, place, part, count * size);
  if (result == HCCL_SUCCESS)
    result = combine(into, part, count, other->type, task->offer.operation);
  free(part);
  return result;
}

static HcclResult take_all(Task *task) {
  HcclResult result = HCCL_SUCCESS;
  uint64_t end = 0;
  bool first = true;
  for (uint32_t rank = 0; rank < task->group->size && result == HCCL_SUCCESS; rank++) {
    result = check(task, rank);
    if (result != HCCL_SUCCESS || !task->take_counts[rank])
      continue;
    result = take(task, rank, first);
    first = false;
    if (task->take_starts[rank] + task->take_counts[rank] > end)
      end = task->take_starts[rank] + task->take_counts[rank];
  }
  if (task->fault == WRONG && result == HCCL_SUCCESS)
    spoil(task->taken, end, task->offer.type);
  return result;
}

static HcclResult exchange(Task *task) {
  Group *group = task->group;
  uint64_t bytes = bytes_offered(&task->offer, group->size);
  group->board->seats[group->rank].offer = task->offer;
  HcclResult result = put_bytes(group, region_of_rank(group->rank), task->given, bytes);
  if (result != HCCL_SUCCESS)
    return report(group, result, "no memory to offer %lu bytes", (unsigned long)bytes);
  result = meet(group, group->timeout);
  if (result != HCCL_SUCCESS)
    return result;
  result = take_all(task);
  HcclResult met = meet(group, group->timeout);
  drop_bytes(group, region_of_rank(group->rank), bytes);
  return result ? result : met;
}

static HcclResult run_collective(Task *task) {
  Group *group = task->group;
  // A card that hangs does not come to the others: it waits for bytes that never arrive.
  if (task->fault == HANGS)
    return wait_for_bytes(group, group->rank, UINT64_MAX);
  pthread_mutex_lock(&group->turn);
  HcclResult result = exchange(task);
  pthread_mutex_unlock(&group->turn);
  return result;
}

static Task *collective(const char *call, const void *given, void *taken, HcclDataType type, Group *group,
            void *stream) {
  Task *task = new_task(group, stream, call, run_collective);
  task->given = given;
  task->taken = taken;
  task->offer.type = type;
  return task;
}

static void give(Task *task, uint32_t rank, uint64_t start, uint64_t count) {
  task->offer.starts[rank] = start;
  task->offer.counts[rank] = count;
}

static void accept(Task *task, uint32_t rank, uint64_t start, uint64_t count) {
  task->take_starts[rank] = start;
  task->take_counts[rank] = count;
}

static void reduce_by(Task *task, HcclReduceOp operation) {
  task->reduces = true;
  task->offer.operation = operation;
}

#define EACH_RANK(rank) for (uint32_t rank = 0; rank < group->size; rank++)

HcclResult HcclAllReduce(void *given, void *taken, uint64_t count, HcclDataType type, HcclReduceOp operation,
                         Group *group, void *stream) {
  Task *task = collective("HcclAllReduce", given, taken, type, group, stream);
  reduce_by(task, operation);
  EACH_RANK(rank) give(task, rank, 0, count), accept(task, rank, 0, count);
  return launch(task);
}

HcclResult HcclReduce(void *given, void *taken, uint64_t count, HcclDataType type, HcclReduceOp operation,
                      uint32_t root, Group *group, void *stream) {
  Task *task = collective("HcclReduce", given, taken, type, group, stream);
  reduce_by(task, operation);
  task->offer.root = root;
  give(task, root, 0, count);
  if (root == group->rank)
    EACH_RANK(rank) accept(task, rank, 0, count);
  return launch(task);
}

HcclResult HcclBroadcast(void *buffer, uint64_t count, HcclDataType type, uint32_t root, Group *group, void *stream) {
  Task *task = collective("HcclBroadcast", buffer, buffer, type, group, stream);
  task->offer.root = root;
  if (root == group->rank)
    EACH_RANK(rank) give(task, rank, 0, count);
  accept(task, root, 0, count);
  return launch(task);
}

HcclResult HcclScatter(void *given, void *taken, uint64_t count, HcclDataType type, uint32_t root, Group *group,
                       void *stream) {
  Task *task = collective("HcclScatter", given, taken, type, group, stream);
  task->offer.root = root;
  if (root == group->rank)
    EACH_RANK(rank) give(task, rank, rank * count, count);
  accept(task, root, 0, count);
  return launch(task);
}

HcclResult HcclAllGather(void *given, void *taken, uint64_t count, HcclDataType type, Group *group, void *stream) {
  Task *task = collective("HcclAllGather", given, taken, type, group, stream);
  EACH_RANK(rank) give(task, rank, 0, count), accept(task, rank, rank * count, count);
  return launch(task);
}

HcclResult HcclAllGatherV(void *given, uint64_t count, void *taken, const uint64_t *counts, const uint64_t *starts,
                          HcclDataType type, Group *group, void *stream) {
  Task *task = collective("HcclAllGatherV", given, taken, type, group, stream);
  EACH_RANK(rank) give(task, rank, 0, count), accept(task, rank, starts[rank], counts[rank]);
  return launch(task);
}

HcclResult HcclReduceScatter(void *given, void *taken, uint64_t count, HcclDataType type, HcclReduceOp operation,
                             Group *group, void *stream) {
  Task *task = collective("HcclReduceScatter", given, taken, type, group, stream);
  reduce_by(task, operation);
  EACH_RANK(rank) give(task, rank, rank * count, count), accept(task, rank, 0, count);
  return launch(task);
}

HcclResult HcclReduceScatterV(void *given, const uint64_t *counts, const uint64_t *starts, void *taken, uint64_t count,
                              HcclDataType type, HcclReduceOp operation, Group *group, void *stream) {
  Task *task = collective("HcclReduceScatterV", given, taken, type, group, stream);
  reduce_by(task, operation);
  EACH_RANK(rank) give(task, rank, starts[rank], counts[rank]), accept(task, rank, 0, count);
  return launch(task);
}

HcclResult HcclAlltoAllV(const void *given, const uint64_t *counts, const uint64_t *starts, HcclDataType type,
                         void *taken, const uint64_t *take_counts, const uint64_t *take_starts,
                         HcclDataType take_type,
                         Group *group, void *stream) {
  if (type != take_type)
    return HCCL_E_PARA;
  Task *task = collective("HcclAlltoAllV", given, taken, type, group, stream);
  EACH_RANK(rank) {
    give(task, rank, starts[rank], counts[rank]);
    accept(task, rank, take_starts[rank], take_counts[rank]);
  }
  return launch(task);
}

// The matrix holds in row i what rank i gives to each: both buffers are without gaps.
HcclResult HcclAlltoAllVC(const void *given, const uint64_t *matrix, HcclDataType type, void *taken,
                          HcclDataType take_type, Group *group, void *stream) {
  if (type != take_type)
    return HCCL_E_PARA;
  Task *task = collective("HcclAlltoAllVC", given, taken, type, group, stream);
  uint64_t start = 0, take_start = 0;
  EACH_RANK(rank) {
    uint64_t out = matrix[group->rank * group->size + rank], in = matrix[rank * group->size + group->rank];
    give(task, rank, start, out);
    accept(task, rank, take_start, in);
    start += out;
    take_start += in;
  }
  return launch(task);
}

HcclResult HcclAlltoAll(const void *given, uint64_t count, HcclDataType type, void *taken, uint64_t take_count,
            HcclDataType take_type, Group *group, void *stream) {
  if (type != take_type || count != take_count)
    return HCCL_E_PARA;
  Task *task = collective("HcclAlltoAll", given, taken, type, group, stream);
  EACH_RANK(rank) give(task, rank, rank * count, count), accept(task, rank, rank * count, count);
  return launch(task);
}

HcclResult HcclBarrier(Group *group, void *stream) {
  return launch(collective("HcclBarrier", NULL, NULL, HCCL_DATA_TYPE_INT8, group, stream));
}
