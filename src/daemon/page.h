/* The whole metrics page: the tables of metrics.h, and what Redis, Kafka, RocksDB and each
 * partition add. Thread rule: pure, but for the process's own numbers from the system. */
#ifndef FCAP_DAEMON_PAGE_H
#define FCAP_DAEMON_PAGE_H

#include "board.h"
#include "fcap/adopter.h"
#include "fcap/checkpointer.h"
#include "fcap/choose.h"
#include "fcap/config.h"
#include "fcap/metrics.h"
#include "fcap/store_rocksdb.h"

struct fcap_page_settings {
    const struct fcap_config *config;
    const struct fcap_worker_view *views;
    size_t view_count;
    const struct fcap_store_metrics *store;
    const struct fcap_checkpoint_metrics *checkpoint; /* zeroes while there are none */
    const struct fcap_adopter_metrics *adoption;      /* the same */
    bool has_checkpoints;                             /* checkpoint.directory is set */
    enum fcap_state_source source;                    /* SOURCES: not known yet */
    int64_t start_ms;                                 /* wall clock of the process's start */
    bool is_ready;
    int64_t retention_ms; /* of the topic; 0: not known; -1: for ever */
};

/* Appends the page. */
void fcap_page_build(const struct fcap_page_settings *settings, struct fcap_buffer *page);

/* Appends docs/METRICS.md: every family of a page, and the reasons of rejected records. One thread
 * at a time. */
void fcap_page_document(struct fcap_buffer *document);

#endif
