// Operators that CANN compiles or finds in its libraries: it has none here; the error names the one that is asked for.
#include "cann.h"

#include <stdlib.h>

// Descriptions are asked back for nothing but their being there.
static void* something(void) {
  return calloc(1, 8);
}

void* aclCreateDataBuffer(void* data, size_t bytes) {
  return something();
}

aclError aclDestroyDataBuffer(void* buffer) {
  free(buffer);
  return ACL_SUCCESS;
}

void* aclCreateTensorDesc(int type, int dimensions, const int64_t* sizes, int format) {
  return something();
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

aclError aclopCompileAndExecute(const char* operator) {
  return has_no(operator);
}

aclError aclopCompileAndExecuteV2(const char* operator) {
  return has_no(operator);
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
