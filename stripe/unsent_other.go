//go:build !linux

package stripe

// setUnsent does nothing: a member only reacts later to a path that slows down.
func setUnsent(uintptr, int) {}
