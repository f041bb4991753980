/* TEST_MALLOC_IS_REPLACED: 1 in a build with AddressSanitizer or ThreadSanitizer, whose malloc
 * needs far more memory than the system's; 0 otherwise. */
#ifndef FCAP_TESTS_SANITIZED_H
#define FCAP_TESTS_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_MALLOC_IS_REPLACED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_MALLOC_IS_REPLACED 1
#endif
#endif
#ifndef TEST_MALLOC_IS_REPLACED
#define TEST_MALLOC_IS_REPLACED 0
#endif

#endif
