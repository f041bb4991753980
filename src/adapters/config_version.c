#include "fcap/versions.h"

#include <yaml.h>

struct fcap_library_version fcap_yaml_version(void)
{
    return (struct fcap_library_version){"libyaml", FCAP_YAML_VERSION, yaml_get_version_string()};
}
