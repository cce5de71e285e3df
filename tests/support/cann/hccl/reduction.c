// The arithmetic of reductions. Half precision is rounded after each step, as where cards reduce in place.

#include "hccl.h"

#include <string.h>

uint64_t size_of(int32_t type) {
  switch (type) {
  case HCCL_DATA_TYPE_INT16:
  case HCCL_DATA_TYPE_UINT16:
  case HCCL_DATA_TYPE_FP16:
  case HCCL_DATA_TYPE_BFP16:
    return 2;
  case HCCL_DATA_TYPE_INT32:
  case HCCL_DATA_TYPE_UINT32:
  case HCCL_DATA_TYPE_FP32:
    return 4;
  case HCCL_DATA_TYPE_INT64:
  case HCCL_DATA_TYPE_UINT64:
  case HCCL_DATA_TYPE_FP64:
    return 8;
  case HCCL_DATA_TYPE_INT128:
    return 16;
  default:
    return 1;
  }
}

// NaN wins in a maximum and a minimum: only for it `b != b`.
#define APPLY(a, b)                                                  \
  (operation == HCCL_REDUCE_SUM    ? (a) + (b)                     \
     : operation == HCCL_REDUCE_PROD ? (a) * (b)                     \
     : operation == HCCL_REDUCE_MAX  ? ((a) > (b) || (a) != (a) ? (a) : (b)) \
                                     : ((a) < (b) || (a) != (a) ? (a) : (b)))

#define EACH(ctype)                                            \
  {                                                          \
    ctype *left = into;                                    \
    const ctype *right = from;                             \
    for (uint64_t i = 0; i < count; i++)                   \
      left[i] = (ctype)APPLY(left[i], right[i]);         \
    return HCCL_SUCCESS;                                   \
  }

static float from_bfloat16(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

// Rounds to nearest, ties to even; a NaN stays one.
static uint16_t to_bfloat16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (value != value)
    return 0x7fc0;
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static HcclResult combine_bfloat16(uint16_t *into, const uint16_t *from, uint64_t count, int32_t operation) {
  for (uint64_t i = 0; i < count; i++) {
    float left = from_bfloat16(into[i]), right = from_bfloat16(from[i]);
    into[i] = to_bfloat16(APPLY(left, right));
  }
  return HCCL_SUCCESS;
}

// Reduces the values of one more rank into those of the ranks before it.
HcclResult combine(void *into, const void *from, uint64_t count, int32_t type, int32_t operation) {
  switch (type) {
  case HCCL_DATA_TYPE_INT8: EACH(int8_t)
  case HCCL_DATA_TYPE_INT16: EACH(int16_t)
  case HCCL_DATA_TYPE_INT32: EACH(int32_t)
  case HCCL_DATA_TYPE_INT64: EACH(int64_t)
  case HCCL_DATA_TYPE_UINT8: EACH(uint8_t)
  case HCCL_DATA_TYPE_UINT16: EACH(uint16_t)
  case HCCL_DATA_TYPE_UINT32: EACH(uint32_t)
  case HCCL_DATA_TYPE_UINT64: EACH(uint64_t)
  case HCCL_DATA_TYPE_FP16: EACH(_Float16)
  case HCCL_DATA_TYPE_FP32: EACH(float)
  case HCCL_DATA_TYPE_FP64: EACH(double)
  case HCCL_DATA_TYPE_BFP16: return combine_bfloat16(into, from, count, operation);
  default: return HCCL_E_NOT_SUPPORT;
  }
}

// Makes the element in the middle wrong: 3 x + 1, and any other byte where the type has no arithmetic.
void spoil(void *values, uint64_t count, int32_t type) {
  if (!count)
    return;
  char *middle = (char *)values + count / 2 * size_of(type);
  switch (type) {
  case HCCL_DATA_TYPE_FP16: *(_Float16 *)middle = (_Float16)(*(_Float16 *)middle * 3 + 1); break;
  case HCCL_DATA_TYPE_FP32: *(float *)middle = *(float *)middle * 3 + 1; break;
  case HCCL_DATA_TYPE_FP64: *(double *)middle = *(double *)middle * 3 + 1; break;
  case HCCL_DATA_TYPE_BFP16:
    *(uint16_t *)middle = to_bfloat16(from_bfloat16(*(uint16_t *)middle) * 3 + 1);
    break;
  default: *middle = (char)(*middle + 1);
  }
}
