// Package mosh tests `heddle mosh` in a world: the unmodified mosh and sshd, a terminal, and captures of what each
// network saw of it.
//
// It holds tests only.
package mosh
