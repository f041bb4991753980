/* Directed scenarios. */
#include "sim.h"

size_t sim_scenario_count(void)
{
    return 0;
}

const char *sim_scenario_name(size_t index)
{
    (void)index;
    return "";
}

bool sim_scenario_run(size_t index, bool trace, struct sim_score *score, char reason[1024])
{
    (void)index;
    (void)trace;
    (void)score;
    (void)reason;
    return true;
}
