#include "fcap/versions.h"

#include <hiredis.h>
#include <stdio.h>

struct fcap_library_version fcap_hiredis_version(void)
{
    static char built[32];
    (void)snprintf(built, sizeof built, "%d.%d.%d", HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
    return (struct fcap_library_version){"hiredis", built, NULL};
}
