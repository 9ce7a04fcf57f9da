/*
 * A table of text: the columns are as wide as their widest cell.
 */
#ifndef RAMP_TEXT_TABLE_H
#define RAMP_TEXT_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#define COLUMNS 6

struct text_table {
	const char *heads[COLUMNS]; /* NULL: no more columns */
	bool right[COLUMNS];
	char *(*rows)[COLUMNS]; /* owned, as each cell */
	size_t n;
};

/* Copies the cells. Without memory the table gets no row. */
void text_table_add(struct text_table *t, const char *const cells[COLUMNS]);
/* Prints it to stdout. */
void text_table_put(const struct text_table *t);
void text_table_free(struct text_table *t);

#endif
