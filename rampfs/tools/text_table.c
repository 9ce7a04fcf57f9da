#include "text_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WIDEST 60 /* column, in characters */

void text_table_add(struct text_table *t, const char *const cells[COLUMNS])
{
	void *grown = realloc(t->rows, (t->n + 1) * sizeof(*t->rows));

	if (!grown)
		return; /* a shorter table */
	t->rows = grown;
	for (int i = 0; i < COLUMNS; i++)
		t->rows[t->n][i] = strdup(cells[i] ? cells[i] : "");
	t->n++;
}

/* Counts the characters of UTF-8: the bytes that begin one. */
static int width_of(const char *text)
{
	int width = 0;

	for (; text && *text; text++)
		width += (*text & 0xc0) != 0x80;
	return width;
}

static void put_cell(const char *text, int width, bool right, bool last)
{
	int pad = width > width_of(text) ? width - width_of(text) : 0;

	printf("%*s%s%*s%s", right ? pad : 0, "", text ? text : "", right || last ? 0 : pad, "",
	       last ? "\n" : "  ");
}

/* Limits a column's width: one long name makes its own row longer and leaves the other rows as they
   are. */
static int padded_width(int width)
{
	return width < WIDEST ? width : WIDEST;
}

void text_table_put(const struct text_table *t)
{
	int width[COLUMNS] = {0}, n = 0;

	for (; n < COLUMNS && t->heads[n]; n++) {
		width[n] = width_of(t->heads[n]);
		for (size_t row = 0; row < t->n; row++)
			if (padded_width(width_of(t->rows[row][n])) > width[n])
				width[n] = padded_width(width_of(t->rows[row][n]));
	}
	for (int i = 0; i < n; i++)
		put_cell(t->heads[i], width[i], t->right[i], i == n - 1);
	for (size_t row = 0; row < t->n; row++)
		for (int i = 0; i < n; i++)
			put_cell(t->rows[row][i], width[i], t->right[i], i == n - 1);
}

void text_table_free(struct text_table *t)
{
	for (size_t row = 0; row < t->n; row++)
		for (int i = 0; i < COLUMNS; i++)
			free(t->rows[row][i]);
	free(t->rows);
}
