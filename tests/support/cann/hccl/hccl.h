// HCCL's interface, as far as torch_npu calls it, and what the files of this library share.

#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define MAX_RANKS 16
#define NAME_LENGTH 128
#define EVERY_RANK MAX_RANKS

typedef enum {
  HCCL_SUCCESS = 0,
  HCCL_E_PARA = 1,
  HCCL_E_PTR = 2,
  HCCL_E_MEMORY = 3,
  HCCL_E_INTERNAL = 4,
  HCCL_E_NOT_SUPPORT = 5,
  HCCL_E_NOT_FOUND = 6,
  HCCL_E_SYSCALL = 8,
  HCCL_E_TIMEOUT = 9,
  HCCL_E_REMOTE = 21,
} HcclResult;

typedef enum { HCCL_REDUCE_SUM = 0, HCCL_REDUCE_PROD = 1, HCCL_REDUCE_MAX = 2, HCCL_REDUCE_MIN = 3 } HcclReduceOp;

typedef enum {
  HCCL_DATA_TYPE_INT8 = 0,
  HCCL_DATA_TYPE_INT16 = 1,
  HCCL_DATA_TYPE_INT32 = 2,
  HCCL_DATA_TYPE_FP16 = 3,
  HCCL_DATA_TYPE_FP32 = 4,
  HCCL_DATA_TYPE_INT64 = 5,
  HCCL_DATA_TYPE_UINT64 = 6,
  HCCL_DATA_TYPE_UINT8 = 7,
  HCCL_DATA_TYPE_UINT16 = 8,
  HCCL_DATA_TYPE_UINT32 = 9,
  HCCL_DATA_TYPE_FP64 = 10,
  HCCL_DATA_TYPE_BFP16 = 11,
  HCCL_DATA_TYPE_INT128 = 12,
  HCCL_DATA_TYPE_HIF8 = 14,
  HCCL_DATA_TYPE_FP8E4M3 = 15,
  HCCL_DATA_TYPE_FP8E5M2 = 16,
  HCCL_DATA_TYPE_FP8E8M0 = 17,
} HcclDataType;

typedef struct {
  char internal[4108];
} HcclRootInfo;

// The beginning of HcclCommConfig: what comes after it changes nothing here.
typedef struct {
  char version[24];
  uint32_t buffer_size, deterministic;
  char name[NAME_LENGTH], udi[NAME_LENGTH];
  uint32_t expansion_mode, traffic_class, service_level, world_rank;
  uint64_t job;
  uint8_t zero_copy;
  int32_t timeout;
} HcclCommConfig;

typedef struct {
  uint32_t receives; // 0 sends, 1 receives
  void *buffer;
  uint64_t count;
  HcclDataType type;
  uint32_t peer;
} HcclSendRecvItem;

// What a rank gives to each rank in a collective: elements of its buffer. All ranks must name the same call.
typedef struct {
  char call[32];
  int32_t type, operation;
  uint32_t root;
  uint64_t starts[MAX_RANKS], counts[MAX_RANKS];
} Offer;

// One rank's place in the memory that all ranks of a group see.
typedef struct {
  _Atomic int32_t process;    // 0 until the rank has come, -1 once it has left
  _Atomic uint64_t meetings;  // how often it has met the others
  Offer offer;
  _Atomic uint64_t sent[MAX_RANKS]; // bytes in its mailbox for each rank, since the beginning
} Seat;

typedef struct {
  _Atomic uint32_t bell; // changes with every change: those who wait sleep on it
  Seat seats[MAX_RANKS];
} Board;

// A communicator as one rank holds it.
typedef struct Group {
  char name[NAME_LENGTH];
  uint32_t size, rank;
  int32_t device;
  int file; // the board, and behind it a region for each rank's collectives and for each mailbox
  Board *board;
  pthread_mutex_t turn; // one collective at a time
  pthread_mutex_t inbox; // one receive at a time
  uint64_t meetings, received[MAX_RANKS];
  double timeout; // seconds
  _Atomic int error;
  char message[512];
  struct Group *next;
} Group;

// What SIMULATED_CANN_FAULTS plants in a call.
enum fault { NONE, WRONG, HANGS, SLOW };

// One call, which a stream makes when its turn comes.
typedef struct Task {
  HcclResult (*run)(struct Task *);
  Group *group;
  void *stream;
  const void *given;
  void *taken;
  Offer offer;
  uint64_t take_starts[MAX_RANKS], take_counts[MAX_RANKS]; // in elements of `taken`, from each rank
  bool reduces;
  enum fault fault;
  uint32_t peer;
  struct Task *next;
} Task;

// What follows is the library's own.
#pragma GCC visibility push(hidden)

// board.c
HcclResult open_board(Group *group, const char *key);
void leave_board(Group *group);
HcclResult meet(Group *group, double seconds);
HcclResult wait_for_bytes(Group *group, uint32_t sender, uint64_t bytes);
void ring(Group *group);
double seconds_of(const char *variable, double usual);
HcclResult put_bytes(Group *group, int64_t place, const void *bytes, uint64_t count);
HcclResult get_bytes(Group *group, int64_t place, void *bytes, uint64_t count);
void drop_bytes(Group *group, int64_t place, uint64_t count);
int64_t region_of_rank(uint32_t rank);
int64_t region_of_mailbox(uint32_t sender, uint32_t receiver);

// reduction.c
uint64_t size_of(int32_t type);
HcclResult combine(void *into, const void *from, uint64_t count, int32_t type, int32_t operation);
void spoil(void *values, uint64_t count, int32_t type);

// streams.c
Task *new_task(Group *group, void *stream, const char *call, HcclResult (*run)(Task *));
HcclResult launch(Task *task);
HcclResult report(Group *group, HcclResult result, const char *format, ...) __attribute__((format(printf, 3, 4)));

// messages.c
HcclResult send_message(Task *task);
HcclResult receive_message(Task *task);

#pragma GCC visibility pop
