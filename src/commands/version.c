#include "commands.h"

#include "fcap/decode.h"
#include "fcap/store_rocksdb.h"
#include "fcap/versions.h"

#include <stdio.h>

struct fcap_daemon_result fcap_command_version(const struct fcap_arguments *arguments)
{
    const struct fcap_library_version libraries[] = {
        fcap_kafka_version(), fcap_rocksdb_version(), fcap_hiredis_version(),
        fcap_yaml_version(),  fcap_http_version(),
    };
    (void)arguments;
    (void)printf("fcapd %s (state format %u)\n", FCAP_VERSION, FCAP_STORE_FORMAT_VERSION);
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++) {
        (void)printf("%-14s built with %s", libraries[i].name, libraries[i].built);
        if (libraries[i].linked != NULL) {
            (void)printf(", linked %s", libraries[i].linked);
        }
        (void)printf("\n");
    }
    (void)printf("JSON           ");
    for (size_t i = 0; fcap_decode_json_parser(i) != NULL; i++) {
        (void)printf(i == 0 ? "%s" : ", %s", fcap_decode_json_parser(i));
    }
    (void)printf("\n");
    return (struct fcap_daemon_result){FCAP_EXIT_OK, true};
}
