// Operators that CANN compiles or finds in its libraries: it has none here; the error names the one that is asked for.
#include "cann.h"

#include <stdlib.h>

// Descriptions are asked back for nothing but their being there.
static void* something(void) {
  return calloc(1, 8);
}

void* aclCreateDataBuffer(void* data, size_t bytes) {
  struct buffer* buffer = malloc(sizeof *buffer);
  *buffer = (struct buffer){data, bytes};
  return buffer;
}

aclError aclDestroyDataBuffer(void* buffer) {
  free(buffer);
  return ACL_SUCCESS;
}

void* aclCreateTensorDesc(int type, int dimensions, const int64_t* sizes, int format) {
  struct description* description = calloc(1, sizeof *description);
  description->dimensions = dimensions < MOST_DIMENSIONS ? dimensions : MOST_DIMENSIONS;
  for (int each = 0; each < description->dimensions; ++each) {
    description->sizes[each] = sizes[each];
  }
  return description;
}

void aclDestroyTensorDesc(void* description) {
  free(description);
}

void* aclopCreateAttr(void) {
  return something();
}

void aclopDestroyAttr(void* attributes) {
  free(attributes);
}

size_t aclGetTensorDescNumDims(const void* description) {
  return 0;
}

void aclSetTensorDescName(void* description, const char* name) {}

ACCEPTED(aclGetTensorDescDimV2)
ACCEPTED(aclGetTensorDescFormat)
ACCEPTED(aclGetTensorDescType)
ACCEPTED(aclSetTensorFormat)
ACCEPTED(aclSetTensorPlaceMent)
ACCEPTED(aclSetTensorShape)
ACCEPTED(aclopSetAttrBool)
ACCEPTED(aclopSetAttrDataType)
ACCEPTED(aclopSetAttrFloat)
ACCEPTED(aclopSetAttrInt)
ACCEPTED(aclopSetAttrListBool)
ACCEPTED(aclopSetAttrListFloat)
ACCEPTED(aclopSetAttrListInt)
ACCEPTED(aclopSetAttrListListInt)
ACCEPTED(aclopSetAttrString)

static aclError has_no(const char* operator) {
  return fail(ACL_ERROR_OP_NOT_FOUND, "EZ3002: The simulated CANN has no kernel of the operator %s", operator);
}

aclError aclopCompileAndExecute(
    const char* operator, int input_count, const struct description* const descriptions[],
    const struct buffer* const inputs[], int output_count, const struct description* const output_descriptions[],
    const struct buffer* const outputs[]) {
  const bool is_computed = computes_operator(operator, descriptions, inputs, output_descriptions, outputs);
  return is_computed ? ACL_SUCCESS : has_no(operator);
}

aclError aclopCompileAndExecuteV2(
    const char* operator, int input_count, const struct description* const descriptions[],
    const struct buffer* const inputs[], int output_count, const struct description* const output_descriptions[],
    const struct buffer* const outputs[]) {
  return aclopCompileAndExecute(
      operator, input_count, descriptions, inputs, output_count, output_descriptions, outputs);
}

static aclError launches_none(const char* what) {
  return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "EE1006: the simulated CANN runs no kernel of a binary: %s", what);
}

#define REFUSED(name) \
  aclError name(void) { \
    return launches_none(#name); \
  }

REFUSED(aclrtBinaryLoadFromData)
REFUSED(aclrtBinaryGetFunction)
REFUSED(aclrtGetFunctionAddr)
REFUSED(aclrtLaunchKernelWithHostArgs)
REFUSED(rtDevBinaryRegister)
REFUSED(rtFunctionRegister)
REFUSED(rtGetC2cCtrlAddr)
REFUSED(rtKernelLaunch)
REFUSED(aclrtFreePhysical)
REFUSED(aclrtMallocPhysical)
REFUSED(aclrtMapMem)
REFUSED(aclrtMemExportToShareableHandle)
REFUSED(aclrtMemImportFromShareableHandle)
REFUSED(aclrtMemSetPidToShareableHandle)
REFUSED(aclrtReleaseMemAddress)
REFUSED(aclrtReserveMemAddress)
REFUSED(aclrtUnmapMem)
