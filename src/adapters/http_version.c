#include "fcap/versions.h"

#include <microhttpd.h>
#include <stdio.h>

struct fcap_library_version fcap_http_version(void)
{
    static char built[32];
    (void)snprintf(built, sizeof built, "%x.%x.%x", (unsigned)MHD_VERSION >> 24 & 0xFF,
                   (unsigned)MHD_VERSION >> 16 & 0xFF, (unsigned)MHD_VERSION >> 8 & 0xFF);
    return (struct fcap_library_version){"libmicrohttpd", built, MHD_get_version()};
}
