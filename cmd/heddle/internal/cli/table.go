package cli

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Table writes a header and the rows in columns. Tabs separate the titles of the header.
func Table[T any](w io.Writer, header string, rows []T, cells func(T) []any) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, header)
	for _, row := range rows {
		for i, cell := range cells(row) {
			if i > 0 {
				fmt.Fprint(table, "\t")
			}
			fmt.Fprint(table, cell)
		}
		fmt.Fprintln(table)
	}
	return table.Flush()
}
