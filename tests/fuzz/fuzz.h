/*
 * What the fuzzers share. Each is one file with two functions: LLVMFuzzerTestOneInput, which
 * libFuzzer calls with one input after the other, and fuzz_seeds, which makes the first inputs with
 * the real encoders (FUZZ_SEEDS=DIR fuzz_NAME writes them and ends).
 *
 * An input that breaks a rule aborts the process, and libFuzzer keeps it; mended, it goes to
 * corpus/NAME, where it is tried at every run.
 */
#ifndef RAMP_FUZZ_H
#define RAMP_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* Calls fuzz_seed for each. */
void fuzz_seeds(void);
void fuzz_seed(const char *name, const void *bytes, size_t len);

/* Ends the process, with the line, where the rule does not hold. */
#define fuzz_rule(holds) ((holds) ? (void)0 : fuzz_broken(__FILE__, __LINE__, #holds))
void fuzz_broken(const char *file, int line, const char *rule) __attribute__((noreturn));

/* A harness takes its own choices from the front of the input; zeros when it is used up. */
struct fuzz_in {
	const uint8_t *at;
	size_t left;
};
uint8_t fuzz_u8(struct fuzz_in *in);
uint16_t fuzz_u16(struct fuzz_in *in);

/* A memfd that holds these bytes, its position at the start; the process ends where it fails. */
int fuzz_file(const void *bytes, size_t len);
/* How many files and sockets this process has open. Pipes are the sanitizers' own. */
unsigned int fuzz_open_files(void);
/* A directory of this process's own in a tmpfs, taken away at its end. */
const char *fuzz_dir(void);

#endif
