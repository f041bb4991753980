/* Prints docs/METRICS.md. */
#include "page.h"

#include <stdio.h>

int main(void)
{
    struct fcap_buffer page = {0};
    fcap_page_document(&page);
    bool is_written = fwrite(page.data, 1, page.size, stdout) == page.size && fflush(stdout) == 0;
    fcap_buffer_done(&page);
    return is_written ? 0 : 1;
}
