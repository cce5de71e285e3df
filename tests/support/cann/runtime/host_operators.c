// The operators that torch_npu's process groups launch past torch's dispatcher, where no kernel of the host is asked.
#include "cann.h"

#include <string.h>

static void fill(const struct buffer* output, const struct buffer* value) {
  for (size_t place = 0; place + value->bytes <= output->bytes; place += value->bytes) {
    memcpy(output->data + place, value->data, value->bytes);
  }
}

// Reads integers of 4 or of 8 bytes.
static void read_integers(const struct buffer* from, int64_t* integers, int count) {
  const bool wide = from->bytes == (size_t)count * sizeof(int64_t);
  for (int each = 0; each < count; ++each) {
    integers[each] = wide ? ((const int64_t*)from->data)[each] : ((const int32_t*)from->data)[each];
  }
}

// Copies a tensor, from a dimension on, to its place in a larger one. Returns how many bytes it has read.
static size_t copy_inside(
    const struct description* small, const struct description* large, const int64_t* before, int dimension,
    const char* from, char* to, size_t item) {
  if (dimension == small->dimensions) {
    memcpy(to, from, item);
    return item;
  }
  size_t step = item, read = 0;
  for (int each = dimension + 1; each < large->dimensions; ++each) {
    step *= (size_t)large->sizes[each];
  }
  for (int64_t index = 0; index < small->sizes[dimension]; ++index) {
    char* place = to + (size_t)(before[2 * dimension] + index) * step;
    read += copy_inside(small, large, before, dimension + 1, from + read, place, item);
  }
  return read;
}

bool computes_operator(
    const char* operator, const struct description* const descriptions[], const struct buffer* const inputs[],
    const struct description* const output_descriptions[], const struct buffer* const outputs[]) {
  if (strcmp(operator, "Fill") == 0) {
    // Its inputs are the sizes and the value.
    fill(outputs[0], inputs[1]);
    return true;
  }
  if (strcmp(operator, "PadV3") == 0) {
    // Its inputs are the tensor, how much comes before and after each dimension, and the value.
    int64_t pads[2 * MOST_DIMENSIONS];
    read_integers(inputs[1], pads, 2 * descriptions[0]->dimensions);
    fill(outputs[0], inputs[2]);
    copy_inside(descriptions[0], output_descriptions[0], pads, 0, inputs[0]->data, outputs[0]->data, inputs[2]->bytes);
    return true;
  }
  return false;
}
