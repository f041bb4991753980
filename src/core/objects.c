#include "fcap/objects.h"

#include <string.h>

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

bool fcap_object_name_is_valid(const char *name)
{
    bool at_start = true; /* of a part */
    size_t size = 0;
    for (; name[size] != '\0' && size <= FCAP_OBJECT_NAME_MAX; size++) {
        bool is_slash = name[size] == '/';
        if (is_slash ? at_start : !is_name_byte(name[size]) || (at_start && name[size] == '.')) {
            return false;
        }
        at_start = is_slash;
    }
    return !at_start && size <= FCAP_OBJECT_NAME_MAX;
}
