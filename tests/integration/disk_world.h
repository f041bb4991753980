/* What the tests of failing disks share: a daemon whose state, and whose checkpoints, lie on
 * volumes that the test fills, takes away or makes fail. Thread rule: one thread, one world. */
#ifndef FCAP_TESTS_DISK_WORLD_H
#define FCAP_TESTS_DISK_WORLD_H

#include "faulty_disk.h"
#include "run_fixture.h"

#define DISK_START_MS 180000
#define DISK_WAIT_MS  180000
#define DISK_STOP_MS  60000

struct disk_world {
    struct run_fixture run;
    struct faulty_disk disk;
    char state[96];    /* where the state will be; an empty folder */
    char volume[64];   /* a folder for the volumes */
    char kept[96];     /* an empty folder in it: checkpoint.directory */
    size_t log_marked; /* bytes of the log before disk_world_mark() */
};

/* Before anything else in main(); the tests skip when nothing can be mounted here. */
void disk_world_enter(void);
void disk_world_must_mount(void);

/* `more` YAML is put behind "memory:", a member of which may come first, indented by two. With
 * `has_checkpoints` there are some, a second apart. */
void disk_world_open(struct disk_world *world, const char *more, bool has_checkpoints);
/* Whatever a test that failed has left mounted goes, too. */
void disk_world_close(struct disk_world *world);

/* Starts the daemon with the shim, and waits until it is ready. */
void disk_world_start(struct disk_world *world);
/* The same without waiting. */
void disk_world_begin(struct disk_world *world);
/* SIGTERM, which must give 0. */
void disk_world_stop(struct disk_world *world);
void disk_world_kill(struct disk_world *world);
/* It ends by itself with this code. */
void disk_world_ends(struct disk_world *world, int code);

/* Produces so many impressions and waits until Redis has them. */
void disk_world_count(struct disk_world *world, size_t count);
/* Each key equals the definition; at least 100 are not empty. */
void disk_world_every_key_is_right(struct disk_world *world);
/* Waits until the metric is above `below`. */
void disk_world_await_more(struct disk_world *world, const char *name, double below);
double disk_world_metric(struct disk_world *world, const char *name);
/* Waits until /readyz is `code` and its body holds `text`. */
void disk_world_await_ready(struct disk_world *world, int code, const char *text);

/* From here on the log is looked at. */
void disk_world_mark(struct disk_world *world);
/* It holds the text since, or will within the time. */
void disk_world_log_says(struct disk_world *world, const char *text);

/* The next offsets of all partitions together, by `fcapd inspect`; the daemon is stopped. */
int64_t disk_world_stored(struct disk_world *world);
/* Those that /status calls committed. */
int64_t disk_world_committed(struct disk_world *world);
/* Those that were produced. */
int64_t disk_world_produced(const struct disk_world *world);

#endif
