/* A record as Kafka gives it, the event that a decoder finds in it, and why a record may be
 * refused. Thread rule: plain data. */
#ifndef FCAP_EVENT_H
#define FCAP_EVENT_H

#include "fcap/bytes.h"

enum fcap_timestamp_type {
    FCAP_TIMESTAMP_NONE,   /* The broker gave none (old message format) or it was -1. */
    FCAP_TIMESTAMP_CREATE, /* The producer's word; bounds nothing. */
    FCAP_TIMESTAMP_APPEND, /* LogAppendTime: the broker's clock. */
};

/* One Kafka record. Everything is borrowed: valid until the handler that got it returns. */
struct fcap_record {
    int32_t partition;
    int64_t offset;
    int64_t timestamp_ms; /* Unix epoch; -1 if none. */
    enum fcap_timestamp_type timestamp_type;
    struct fcap_bytes key;   /* data == NULL: null key */
    struct fcap_bytes value; /* data == NULL: null value (a tombstone) */
};

/* What the decoder found. Borrowed from the record or from the decoder's own memory: valid until
 * the decoder's next call. */
struct fcap_event {
    bool is_tombstone;      /* Null value: erase `user`. Only `user` is set. */
    struct fcap_bytes user; /* non-empty valid UTF-8, no NUL */
    struct fcap_bytes ad;   /* non-empty valid UTF-8, no NUL */
    int64_t time_ms;        /* Unix epoch, milliseconds */
    bool has_id;            /* event.id is configured */
    uint64_t id_hash;       /* fcap_hash64(id bytes, 0); meaningful when has_id */
};

/* What bounds an event's time from above. */
struct fcap_future_rule {
    int64_t bound_ms; /* the latest that it may be now, Unix epoch: no clock known is ahead of it */
    int64_t skew_ms;  /* limits.max_future_skew */
};

/* The producer's clock may be ahead; beyond the skew its event is refused. With LogAppendTime the
 * broker's own stamp, where it is earlier than the bound, makes the answer the same for every
 * replay. Pure. */
bool fcap_is_future(const struct fcap_record *record, int64_t event_time_ms,
                    struct fcap_future_rule rule);

/* What producers write before 2001-01-01 is no time but a unit error, a zero or "none". */
#define FCAP_TIMESTAMP_USABLE_MS INT64_C(978307200000)

/* Why a record changes no count. The order is part of no format; the names are metric labels
 * (fcapd_records_rejected_total{reason="..."}) and the dead-letter header `fcap.reason`.
 * DEAD: goes to the dead-letter topic; SKIP: only counted. */
/* clang-format off */
#define FCAP_REJECT_LIST(X)                                                                     \
    X(NONE,           SKIP, "none",            "accepted")                                      \
    X(REDELIVERED,    SKIP, "redelivered",     "offset below the stored one")                   \
    X(FILTERED,       SKIP, "filtered",        "event.filter does not match")                   \
    X(LATE,           SKIP, "late",            "older than every window")                       \
    X(DUPLICATE,      SKIP, "duplicate",       "same user, event time and event.id")            \
    X(IGNORED_USER,   SKIP, "ignored_user",    "the id is in event.ignore_users")               \
    X(ADS_LIMIT,      SKIP, "ads_limit",       "the user has limits.ads_per_user ads already")  \
    X(FUTURE,         DEAD, "future",          "event time beyond limits.max_future_skew")      \
    X(EMPTY,          DEAD, "empty",           "zero-length value (not null)")                  \
    X(SIZE,           DEAD, "size",            "value longer than limits.record_bytes")         \
    X(FRAMING,        DEAD, "framing",         "starts with 00 and a schema id, framed by a schema registry: set event.framing; with it, nothing in the frame") \
    X(ENCODING,       DEAD, "encoding",        "not valid UTF-8, a lone surrogate, or a byte order mark") \
    X(JSON,           DEAD, "json",            "not one JSON document")                         \
    X(DEPTH,          DEAD, "depth",           "nested deeper than the limit")                  \
    X(NOT_OBJECT,     DEAD, "not_object",      "JSON, but not an object")                       \
    X(REPEATED_KEY,   DEAD, "repeated_key",    "a key that is read stands twice")               \
    X(MISSING_FIELD,  DEAD, "missing_field",   "a configured field is absent")                  \
    X(WRONG_TYPE,     DEAD, "wrong_type",      "a configured field has a type that is no id or time") \
    X(BAD_ID,         DEAD, "bad_id",          "an id is empty, too long, holds NUL, or is a number with a fraction or exponent") \
    X(BAD_TIME,       DEAD, "bad_time",        "the event time cannot be read or is out of range") \
    X(NO_KEY,         DEAD, "no_key",          "the user comes from the key, but the key is null")
/* clang-format on */

enum fcap_reject {
#define X(name, where, label, text) FCAP_REJECT_##name,
    FCAP_REJECT_LIST(X)
#undef X
        FCAP_REJECT_COUNT
};

/* The metric label, and the sentence for the docs. Never NULL. */
const char *fcap_reject_label(enum fcap_reject reject);
const char *fcap_reject_text(enum fcap_reject reject);

/* True when a record refused for this reason goes to the dead-letter topic. */
bool fcap_reject_is_dead(enum fcap_reject reject);

#endif
