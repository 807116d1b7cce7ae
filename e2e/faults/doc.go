// Package faults tests the heddle binary while networks fail: paths die during a download, addresses change, servers go
// away, floods of garbage, kills. Captures count what each path carried. Tests only.
package faults
