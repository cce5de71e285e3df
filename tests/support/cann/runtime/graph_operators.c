// What older torch_npu (2.3 to 2.6) registers with CANN's graph engine as it is loaded: constructors of C++, under the
// names that the compiler gives them. No graph is built here, so nothing is kept.
#include <string.h>

// AscendString holds a shared pointer, which its destructor, in torch_npu itself, gives back: none is there to give.
enum { SHARED_POINTER_BYTES = 16 };

void _ZN2ge12AscendStringC1EPKc(void* string, const char* text) {
  memset(string, 0, SHARED_POINTER_BYTES);
}

#define NOTHING(name) \
  void name(void) {}

// OperatorCreatorRegister(name, creator)
NOTHING(_ZN2ge23OperatorCreatorRegisterC1EPKcRKSt8functionIFNS_8OperatorERKNS_12AscendStringEEE)
// Operator(name, type), of texts and of AscendStrings
NOTHING(_ZN2ge8OperatorC2EPKcS2_)
NOTHING(_ZN2ge8OperatorC2ERKNS_12AscendStringES3_)
// Operator's AttrRegister, RequiredAttrRegister, InputRegister, OutputRegister, DynamicInputRegister(ByIndex)
NOTHING(_ZN2ge8Operator12AttrRegisterEPKcb)
NOTHING(_ZN2ge8Operator12AttrRegisterEPKcl)
NOTHING(_ZN2ge8Operator20RequiredAttrRegisterEPKc)
NOTHING(_ZN2ge8Operator13InputRegisterEPKc)
NOTHING(_ZN2ge8Operator14OutputRegisterEPKc)
NOTHING(_ZN2ge8Operator20DynamicInputRegisterEPKcjb)
NOTHING(_ZN2ge8Operator27DynamicInputRegisterByIndexEPKcjm)
