// Package mosh tests `heddle mosh` with the unmodified mosh and sshd, a terminal, and captures in each network. Tests only.
package mosh
