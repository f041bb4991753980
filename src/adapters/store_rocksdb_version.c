#include "fcap/versions.h"

#include <stddef.h>

/* rocksdb/version.h is C++, and the C API has no such call: the build says what it found. */
struct fcap_library_version fcap_rocksdb_version(void)
{
    return (struct fcap_library_version){"RocksDB", FCAP_ROCKSDB_VERSION, NULL};
}
