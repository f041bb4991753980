/* `fcapd demo`: the real daemon in a small world of its own, and a recount of every key.
 * Thread rule: main only, before any other thread exists. */
#ifndef FCAP_DEMO_DEMO_H
#define FCAP_DEMO_DEMO_H

#include "demo/options.h"

/* Runs the demo; the exit code. Everything is said on standard output and error. */
int demo_run(const struct demo_options *options);

#endif
