// Package faults tests the heddle binary in worlds where networks fail: paths that die in the middle of a download,
// addresses that change, servers that go away, floods of garbage, kills.
//
// It holds tests only. What a test says of a path it counts in captures.
package faults
