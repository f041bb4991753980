#include "fcap/mutant.h"

#ifdef FCAP_MUTANTS
enum fcap_mutant fcap_mutant = FCAP_MUTANT_NONE;
#else
extern const int fcap_mutants_are_compiled_out; /* A file must declare something. */
#endif
