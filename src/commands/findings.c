#include "findings.h"

#include <stdarg.h>
#include <stdio.h>

static void tell(const char *kind, const char *format, va_list arguments)
{
    (void)printf("%-5s ", kind);
    (void)vprintf(format, arguments);
    (void)printf("\n");
}

void fcap_findings_good(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    tell("ok", format, arguments);
    va_end(arguments);
}

void fcap_findings_warn(struct fcap_findings *findings, const char *format, ...)
{
    va_list arguments;
    findings->warnings++;
    va_start(arguments, format);
    tell("warn", format, arguments);
    va_end(arguments);
}

void fcap_findings_fail(struct fcap_findings *findings, const char *format, ...)
{
    va_list arguments;
    findings->failures++;
    va_start(arguments, format);
    tell("FAIL", format, arguments);
    va_end(arguments);
}
