#include "fcap/event.h"

#include "fcap/assert.h"

enum destination { SKIP, DEAD };

static const struct {
    enum destination destination;
    const char *label;
    const char *text;
} rejects[FCAP_REJECT_COUNT] = {
#define X(name, where, label, text) {where, label, text},
    FCAP_REJECT_LIST(X)
#undef X
};

const char *fcap_reject_label(enum fcap_reject reject)
{
    FCAP_ASSERT(reject < FCAP_REJECT_COUNT);
    return rejects[reject].label;
}

const char *fcap_reject_text(enum fcap_reject reject)
{
    FCAP_ASSERT(reject < FCAP_REJECT_COUNT);
    return rejects[reject].text;
}

bool fcap_reject_is_dead(enum fcap_reject reject)
{
    FCAP_ASSERT(reject < FCAP_REJECT_COUNT);
    return rejects[reject].destination == DEAD;
}
