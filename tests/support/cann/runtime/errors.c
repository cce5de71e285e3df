// Messages of errors: the last one of each thread is kept until it is asked for.
#include "cann.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static __thread char recent[1024];
static __thread char given[1024];
static __thread aclError last_error = ACL_SUCCESS;

pthread_mutex_t cann_lock = PTHREAD_MUTEX_INITIALIZER;

aclError fail(aclError code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(recent, sizeof recent, format, arguments);
  va_end(arguments);
  last_error = code;
  return code;
}

const char* aclGetRecentErrMsg(void) {
  if (recent[0] == '\0') {
    return NULL;
  }
  memcpy(given, recent, sizeof given);
  recent[0] = '\0';
  return given;
}

aclError aclrtPeekAtLastError(int level) {
  return last_error;
}

aclError aclrtGetLastError(int level) {
  const aclError error = last_error;
  last_error = ACL_SUCCESS;
  return error;
}

// The kind of a device's fault, of which a simulated one says nothing more.
aclError aclrtGetErrorVerbose(int32_t card, void* information) {
  return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "EE1006: the simulated CANN has no details of errors");
}

aclError aclrtRepairError(int32_t card, const void* information) {
  return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "EE1006: the simulated CANN repairs no errors");
}
