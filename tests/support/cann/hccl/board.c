// The memory that the ranks of a group share, a file whose beginning is mapped, and how ranks wait for each other.

#define _GNU_SOURCE
#include "hccl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// Regions are sparse: a page that nothing was written to takes no memory.
#define REGION ((int64_t)1 << 40)

// What CANN says of a rank that does not come.
#define NOT_RECEIVED                                                                                           \
  "EI0002: The wait execution of the Notify register times out. Reason: The Notify register has not received " \
  "the Notify record from remote rank [%u]. Local rank [%u], group [%s]. "

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

double seconds_of(const char *variable, double usual) {
  const char *text = getenv(variable);
  double seconds = text ? atof(text) : usual;
  return seconds > 0 ? seconds : 1e9;
}

int64_t region_of_rank(uint32_t rank) {
  return REGION * (1 + rank);
}

int64_t region_of_mailbox(uint32_t sender, uint32_t receiver) {
  return REGION * (1 + MAX_RANKS + sender * MAX_RANKS + receiver);
}

// Opens the board that all ranks with this key share; its name goes once all have it.
HcclResult open_board(Group *group, const char *key) {
  char name[NAME_MAX];
  snprintf(name, sizeof name, "/hccl-%s", key);
  group->file = shm_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (group->file < 0 || ftruncate(group->file, REGION * (1 + MAX_RANKS + MAX_RANKS * MAX_RANKS)) != 0)
    return HCCL_E_SYSCALL;
  group->board = mmap(NULL, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, group->file, 0);
  if (group->board == MAP_FAILED)
    return HCCL_E_MEMORY;
  atomic_store(&group->board->seats[group->rank].process, getpid());
  HcclResult result = meet(group, seconds_of("HCCL_CONNECT_TIMEOUT", 120));
  if (result != HCCL_SUCCESS || group->rank == 0)
    shm_unlink(name);
  return result;
}

void leave_board(Group *group) {
  atomic_store(&group->board->seats[group->rank].process, -1);
  ring(group);
  munmap(group->board, sizeof(Board));
  close(group->file);
}

void ring(Group *group) {
  atomic_fetch_add(&group->board->bell, 1);
  syscall(SYS_futex, &group->board->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

// Says whether a rank has come and is gone: it left the group, or its process ended.
static bool is_gone(Group *group, uint32_t rank) {
  int process = atomic_load(&group->board->seats[rank].process);
  if (process <= 0)
    return process < 0;
  char path[64], line[256] = "";
  snprintf(path, sizeof path, "/proc/%d/stat", process);
  FILE *file = fopen(path, "r");
  if (!file)
    return errno == ENOENT;
  char *read = fgets(line, sizeof line, file);
  fclose(file);
  char state = 0, *end = NULL;
  for (char *at = line; read && *at; at++)
    if (*at == ')')
      end = at;
  return end && sscanf(end, ") %c", &state) == 1 && (state == 'Z' || state == 'X');
}

// Waits until a counter of a rank has reached a value.
static HcclResult wait_for(Group *group, uint32_t rank, _Atomic uint64_t *counter, uint64_t value, double deadline) {
  const struct timespec pause = {0, 50 * 1000 * 1000};
  while (atomic_load(counter) < value) {
    uint32_t heard = atomic_load(&group->board->bell);
    bool gone = is_gone(group, rank);
    if (atomic_load(counter) >= value)
      break;
    if (gone)
      return report(group, HCCL_E_REMOTE, NOT_RECEIVED "1 abnormal device: Heartbeat Lost Occurred, Possible "
                          "Reason: Process has exited", rank, group->rank, group->name);
    if (now() > deadline)
      return report(group, HCCL_E_TIMEOUT, NOT_RECEIVED "HCCL_EXEC_TIMEOUT has passed", rank, group->rank,
                          group->name);
    syscall(SYS_futex, &group->board->bell, FUTEX_WAIT, heard, &pause, NULL, 0);
  }
  return HCCL_SUCCESS;
}

// Waits until all ranks have come as often as this one.
HcclResult meet(Group *group, double seconds) {
  double deadline = now() + seconds;
  uint64_t meetings = ++group->meetings;
  atomic_store(&group->board->seats[group->rank].meetings, meetings);
  ring(group);
  for (uint32_t rank = 0; rank < group->size; rank++) {
    HcclResult result = wait_for(group, rank, &group->board->seats[rank].meetings, meetings, deadline);
    if (result != HCCL_SUCCESS)
      return result;
  }
  return HCCL_SUCCESS;
}

// Waits until a rank has sent so many bytes to this one.
HcclResult wait_for_bytes(Group *group, uint32_t sender, uint64_t bytes) {
  return wait_for(group, sender, &group->board->seats[sender].sent[group->rank], bytes, now() + group->timeout);
}

HcclResult put_bytes(Group *group, int64_t place, const void *bytes, uint64_t count) {
  for (uint64_t done = 0; done < count;) {
    ssize_t written = pwrite(group->file, (const char *)bytes + done, count - done, place + (int64_t)done);
    if (written <= 0)
      return HCCL_E_MEMORY;
    done += (uint64_t)written;
  }
  return HCCL_SUCCESS;
}

HcclResult get_bytes(Group *group, int64_t place, void *bytes, uint64_t count) {
  for (uint64_t done = 0; done < count;) {
    ssize_t taken = pread(group->file, (char *)bytes + done, count - done, place + (int64_t)done);
    if (taken <= 0)
      return HCCL_E_SYSCALL;
    done += (uint64_t)taken;
  }
  return HCCL_SUCCESS;
}

// Gives back the memory of bytes that all have read.
void drop_bytes(Group *group, int64_t place, uint64_t count) {
  if (count)
    fallocate(group->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, place, (int64_t)count);
}
