/* See fuzz_http_world.h. */
#include "fuzz_http_world.h"

#include "fcap/assert.h"
#include "fcap/clock_os.h"
#include "fcap/decode.h"
#include "fcap/log.h"
#include "lab/lab.h"
#include "unit/pipeline_world.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEPS 500

static char listen_text[32];

static void remove_token_file(void);
static struct fuzz_http_world world_of_pages;

static void remove_token_file(void)
{
    (void)unlink(world_of_pages.token_file); /* At exit; nobody is left to tell. */
}

static void write_token_file(struct fuzz_http_world *pages)
{
    static const char text[] = FUZZ_HTTP_TOKEN "\n";
    (void)snprintf(pages->token_file, sizeof pages->token_file, "%s/fcap-token-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    int file = mkostemp(pages->token_file, O_CLOEXEC);
    FCAP_ASSERT(file >= 0 && write(file, text, sizeof text - 1) == sizeof text - 1);
    FCAP_ASSERT(close(file) == 0 && atexit(remove_token_file) == 0);
}

/* Users with all that JSON must escape, counted by the real core. */
static void count_something(struct fuzz_http_world *pages)
{
    static const char *const users[] = {"user-1", "\"\\\"", "\xc3\xa9\xe2\x82\xac", "a\nb\x7f"};
    struct fcap_decode_settings decode = {.user_path = "@key",
                                          .ad_path = "ad_id",
                                          .time_path = "@timestamp",
                                          .user_id_bytes_max = 1000,
                                          .ad_id_bytes_max = 100,
                                          .record_bytes_max = 10000};
    FCAP_ASSERT(fcap_decode_json_open(&decode, &pages->decoder, NULL) == FCAP_OK);
    pipeline_world_init(1);
    for (size_t i = 0; i < sizeof users / sizeof users[0]; i++) {
        pipeline_world_add(0, users[i], "{\"ad_id\":\"an \\\"ad\\\"\"}", world.now_ms);
    }
    pipeline_world_settings(&pages->settings);
    pipeline_world_start(&pages->settings, pages->decoder);
    for (int i = 0; i < STEPS; i++) {
        FCAP_ASSERT(fcap_pipeline_step(world.pipeline, 0) == FCAP_OK);
        world.now_ms += 10;
    }
}

/* A list of hot users as records make it: ids are UTF-8 of any length. */
static void fill_hot(struct fcap_worker_view *view)
{
    static struct fcap_hot_users hot;
    char text[400] = "x";
    fcap_hot_users_init(&hot, NULL);
    fcap_hot_users_add(&hot, 0, fcap_bytes_of("user-1"));
    fcap_hot_users_add(&hot, 0, fcap_bytes_of("\"\\\n"));
    for (size_t i = 1; i + 2 < sizeof text; i += 2) {
        memcpy(text + i, "\xc3\xa9", 2);
    }
    for (size_t from = 0; from < 2; from++) { /* Cut within a character, and between two. */
        fcap_hot_users_add(&hot, 0, fcap_bytes_of(text + from));
    }
    memcpy(view->hot, hot.users, hot.count * sizeof hot.users[0]);
    view->hot_count = hot.count;
}

static void fill_view(struct fcap_worker_view *view, int32_t partition)
{
    view->published_ms = fcap_clock_os_monotonic_ms();
    view->sink.state.ready = true;
    view->time_known = true;
    view->source.topic_partitions = 2;
    fcap_worker_view_reserve(view, 1);
    view->task_count = 1;
    view->tasks[0] = (struct fcap_board_task){
        .report = {.partition = partition, .gate_open = true, .complete_since_ms = FCAP_TIME_NONE}};
}

static void fill_config(struct fuzz_http_world *pages)
{
    pages->port = lab_free_port();
    (void)snprintf(listen_text, sizeof listen_text, "127.0.0.1:%u", pages->port);
    pages->config = (struct fcap_config){
        .profile = "days", .instance = "one", .workers = 2, .windows_count = 1};
    pages->config.redis.host = "redis.example";
    pages->config.windows[0] = (struct fcap_config_window){"1h", PIPELINE_WORLD_HOUR_MS};
    pages->config.http.listen = listen_text;
    pages->config.http.token_file = pages->token_file;
}

struct fuzz_http_world *fuzz_http_world_open(void)
{
    static struct fcap_worker_view other;
    struct fuzz_http_world *pages = &world_of_pages;
    struct fcap_error error = {""};
    fcap_log_init((struct fcap_log_settings){.level = FCAP_LOG_ERROR, .descriptor = STDERR_FILENO});
    write_token_file(pages);
    fill_config(pages);
    count_something(pages);
    pages->board = fcap_board_open(2);
    pages->questions = fcap_questions_open(2);
    fill_view(&pages->view, 0);
    pages->view.phase = FCAP_WORKER_RUNNING;
    fill_hot(&pages->view);
    fill_view(&other, 1);
    other.phase = FCAP_WORKER_ENDED;
    fcap_board_publish(pages->board, 0, &pages->view);
    fcap_board_publish(pages->board, 1, &other);
    fcap_questions_join(pages->questions, 0);
    struct fcap_server_settings settings = {&pages->config, pages->board, pages->questions};
    if (fcap_server_open(&settings, &pages->server, &error) != FCAP_OK) {
        lab_die("%s", error.text);
    }
    return pages;
}

void fuzz_http_world_answer(struct fuzz_http_world *pages)
{
    fcap_board_beat(pages->board, 0);
    fcap_board_beat(pages->board, 1);
    fcap_questions_answer(pages->questions, 0, world.pipeline, &pages->settings, &pages->view);
}
