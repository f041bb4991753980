/* What the files of backfill share; nobody else includes this.
 *
 * backfill.c knows owners and time, backfill_read.c judges records and spills them,
 * backfill_fold.c folds the files and splits what does not fit, backfill_write.c makes the
 * transactions. */
#ifndef FCAP_CORE_BACKFILL_PARTS_H
#define FCAP_CORE_BACKFILL_PARTS_H

#include "fcap/assert.h"
#include "fcap/backfill.h"
#include "fcap/fold.h"
#include "fcap/value.h"

#include <string.h>

#define FILES_BITS_MAX 9  /* 512 files while reading */
#define SPLIT_BITS     4  /* a file that does not fit becomes 16 */
#define SPLITS_MAX     6  /* one below the other */
#define RECORD_BYTES   48 /* of an event in memory, about, when nothing is known yet */
#define STEP_RECORDS   10000

struct part {
    enum fcap_backfill_fate fate;
    bool is_claimed;
    uint64_t epoch;
    int64_t wait_ms;     /* from the claims until a look decides */
    int64_t next_offset; /* records below are known */
    int64_t complete_since_ms;
};

/* A spilled file: the users whose hash ends with given bits. */
struct file {
    size_t number; /* of the spill */
    unsigned bits; /* how many */
    unsigned depth;
};

/* Keys of one partition, waiting to be written together. */
struct pending {
    int32_t partition;
    struct fcap_buffer bytes;
    struct pending_key {
        size_t key_offset; /* into `bytes` */
        size_t key_size;
        size_t value_size; /* the value follows the key */
        int64_t expire_at_ms;
    } keys[FCAP_BACKFILL_KEYS_MAX + FCAP_WINDOWS_MAX];
    size_t count;
    size_t users; /* with at least one of the keys */
};

struct fcap_backfill {
    struct fcap_settings settings;
    struct fcap_backfill_ports ports;
    struct fcap_key_template key_template;
    int64_t longest_ms;
    struct fcap_error error;
    enum fcap_backfill_port failed_in;
    struct fcap_backfill_report report;

    struct part *parts;
    bool *looked;     /* scratch of a look */
    int64_t begun_ms; /* T0; 0: not yet */
    bool has_claimed;
    int64_t claimed_ms; /* monotonic: the first moment that is known to be behind all claims */
    bool has_looked;
    int64_t look_ms;         /* monotonic, when the newest look began */
    int64_t look_time_ms;    /* Redis TIME that it gave */
    int64_t look_time_at_ms; /* monotonic, when that was, about */
    int64_t look_pause_ms;   /* from its begin to the next one's */

    struct file *files;
    size_t file_count;
    size_t file_capacity;
    unsigned file_bits;
    struct fcap_buffer record; /* scratch */

    /* Folding. */
    struct fcap_fold_ads *ads;
    struct fcap_fold *fold;
    size_t file;                       /* under way */
    uint64_t position;                 /* in it */
    bool is_folded;                    /* WRITING: its users are being written */
    size_t user;                       /* the next of them */
    size_t records_left;               /* of this step */
    enum fcap_status failure;          /* of a visitor */
    uint64_t tally[FCAP_REJECT_COUNT]; /* of the fold; NONE: counted events */
    uint64_t tally_records;
    bool is_splitting;
    size_t children; /* the first of them */

    struct pending pending;
};

/* backfill.c */
struct part *backfill_part(struct fcap_backfill *backfill, int32_t partition);
/* Redis TIME now. */
int64_t backfill_redis_ms(const struct fcap_backfill *backfill, struct fcap_moment now);
/* Notes what could not be done and by which port, and gives the status back. */
enum fcap_status backfill_fail(struct fcap_backfill *backfill, enum fcap_backfill_port port,
                               enum fcap_status status, const char *what);
/* The same for what no port has to do with. */
enum fcap_status backfill_fail_here(struct fcap_backfill *backfill, enum fcap_status status,
                                    const char *text);

/* backfill_read.c */
struct spilled {
    struct fcap_fold_place place;
    struct fcap_event event;
};
/* False: no record of ours. Views of `bytes`. */
bool backfill_decode(struct fcap_bytes bytes, struct spilled *ret_spilled);
/* The bits by which users are spread over files. */
uint64_t backfill_hash(struct fcap_bytes user);
/* Makes the files for about so many records. */
enum fcap_status backfill_make_files(struct fcap_backfill *backfill, uint64_t records);
/* A file more in the list. */
void backfill_list_file(struct fcap_backfill *backfill, struct file file);

/* backfill_fold.c */
/* Folds some records of the file under way; *ret_folded: all of it. */
enum fcap_status backfill_fold_some(struct fcap_backfill *backfill, bool *ret_folded);
/* A bounded piece of the check; *ret_done: all files were folded, or split and folded. */
enum fcap_status backfill_check(struct fcap_backfill *backfill, bool *ret_done);

/* Closes it, and remembers its size. */
void backfill_end_fold(struct fcap_backfill *backfill);

/* backfill_write.c */
/* The log does not reach back as far as the window does, at T. */
bool backfill_is_incomplete(const struct fcap_backfill *backfill, const struct part *part,
                            size_t window);
/* A bounded piece of the writing. */
enum fcap_status backfill_write(struct fcap_backfill *backfill, struct fcap_moment now,
                                bool *ret_done);

#endif
