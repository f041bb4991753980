/* Versions of the libraries, for `fcapd version`: what the headers said when the program was built
 * and what is linked now. Each function lives beside the adapter of its library, the only place
 * that may include its header. Thread rule: pure. */
#ifndef FCAP_VERSIONS_H
#define FCAP_VERSIONS_H

struct fcap_library_version {
    const char *name;
    const char *built;  /* against; never NULL */
    const char *linked; /* NULL: the library does not tell */
};

struct fcap_library_version fcap_kafka_version(void);
struct fcap_library_version fcap_hiredis_version(void);
struct fcap_library_version fcap_rocksdb_version(void);
struct fcap_library_version fcap_yaml_version(void);
struct fcap_library_version fcap_http_version(void);

#endif
