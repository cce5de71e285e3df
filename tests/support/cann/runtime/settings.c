// Modes of the computation, as they were set. Kernels of the host ask for those that they follow.
#include "cann.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARAMETERS = 8, OPTIONS = 32, OPTION_BYTES = 256 };

static int64_t parameters[PARAMETERS];
enum { JIT_COMPILE = 10 };
// Operators come compiled, as on the cards that are simulated.
static char options[OPTIONS][OPTION_BYTES] = {[JIT_COMPILE] = "disable"};

// 0 where overflows are saturated, 1 where they become infinite.
int simulated_overflow_mode = 1;

double number_from(const char* variable, double otherwise) {
  const char* text = getenv(variable);
  return text != NULL && *text != '\0' ? strtod(text, NULL) : otherwise;
}

aclError aclrtSetDeviceSatMode(int mode) {
  simulated_overflow_mode = mode;
  return ACL_SUCCESS;
}

aclError aclrtGetDeviceSatMode(int* mode) {
  *mode = simulated_overflow_mode;
  return ACL_SUCCESS;
}

aclError aclrtSetSysParamOpt(int option, int64_t value) {
  if (option < 0 || option >= PARAMETERS) {
    return fail(ACL_ERROR_RT_PARAM_INVALID, "EE1001: there is no system parameter %d", option);
  }
  parameters[option] = value;
  return ACL_SUCCESS;
}

aclError aclrtGetSysParamOpt(int option, int64_t* value) {
  if (option < 0 || option >= PARAMETERS) {
    return fail(ACL_ERROR_RT_PARAM_INVALID, "EE1001: there is no system parameter %d", option);
  }
  *value = parameters[option];
  return ACL_SUCCESS;
}

aclError aclrtCtxSetSysParamOpt(int option, int64_t value) {
  return aclrtSetSysParamOpt(option, value);
}

aclError aclrtCtxGetSysParamOpt(int option, int64_t* value) {
  return aclrtGetSysParamOpt(option, value);
}

aclError aclSetCompileopt(int option, const char* value) {
  if (option < 0 || option >= OPTIONS) {
    return fail(ACL_ERROR_INVALID_PARAM, "EE1001: there is no compile option %d", option);
  }
  snprintf(options[option], OPTION_BYTES, "%s", value);
  return ACL_SUCCESS;
}

size_t aclGetCompileoptSize(int option) {
  return strlen(options[option]) + 1;
}

aclError aclGetCompileopt(int option, char* value, size_t bytes) {
  snprintf(value, bytes, "%s", options[option]);
  return ACL_SUCCESS;
}

// A card has infinities and bfloat16, and compiles at run time only where that is set.
aclError aclGetCannAttribute(int attribute, int32_t* value) {
  enum { JIT_COMPILE = 2 };
  *value = attribute != JIT_COMPILE;
  return ACL_SUCCESS;
}

aclError aclGetCannAttributeList(const int** attributes, size_t* number) {
  static const int all[] = {0, 1, 2};
  *attributes = all;
  *number = sizeof all / sizeof *all;
  return ACL_SUCCESS;
}

ACCEPTED(aclrtSetOpExecuteTimeOut)
ACCEPTED(aclrtSetOpWaitTimeout)

aclError aclrtSetOpExecuteTimeOutV2(uint64_t timeout, uint64_t* actual) {
  *actual = timeout;
  return ACL_SUCCESS;
}
