// Logs, profiles and dumps of kernels. Of a dump it is known that it was asked for: kernels of the host write the files.
#include "cann.h"

#include <stdio.h>

// Where the configuration of the dump lies that was set; empty where none is.
char simulated_dump[PATH_BYTES];

void aclAppLog(int level, const char* function, const char* file, uint32_t line, const char* format, ...) {}

ACCEPTED(aclmdlInitDump)

aclError aclmdlSetDump(const char* configuration) {
  snprintf(simulated_dump, sizeof simulated_dump, "%s", configuration);
  return ACL_SUCCESS;
}

aclError aclmdlFinalizeDump(void) {
  simulated_dump[0] = '\0';
  return ACL_SUCCESS;
}

ACCEPTED(aclopStartDumpArgs)
ACCEPTED(aclopStopDumpArgs)
ACCEPTED(MsprofRegisterCallback)
ACCEPTED(MsprofReportAdditionalInfo)
ACCEPTED(MsprofReportApi)
ACCEPTED(MsprofReportCompactInfo)

uint64_t MsprofGetHashId(const char* text, size_t bytes) {
  uint64_t hash = 14695981039346656037u;
  for (size_t each = 0; each < bytes; ++each) {
    hash = (hash ^ (unsigned char)text[each]) * 1099511628211u;
  }
  return hash;
}

uint64_t MsprofSysCycleTime(void) {
  return now();
}
