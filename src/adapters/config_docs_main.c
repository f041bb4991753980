/* fcap-config-docs sample|docs: prints config/fcapd.yaml or docs/CONFIG.md (target config-docs). */
#include "fcap/config.h"

#include <string.h>

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "sample") == 0) {
        fcap_config_print_sample(stdout);
        return fflush(stdout) == 0 ? 0 : 1;
    }
    if (argc == 2 && strcmp(argv[1], "docs") == 0) {
        fcap_config_print_docs(stdout);
        return fflush(stdout) == 0 ? 0 : 1;
    }
    (void)fprintf(stderr, "usage: fcap-config-docs sample|docs\n");
    return 64;
}
