//go:build !linux

package tcprepair

import (
	"net"

	"heddle/internal/errhint"
)

func unsupported() error {
	return errhint.NeedsLinux("moving a TCP connection", "relay it instead")
}

// Allowed needs Linux.
func Allowed() error { return unsupported() }

// Hold needs Linux.
func Hold(*net.TCPConn) (*Held, error) { return nil, unsupported() }

// StateOf needs Linux.
func StateOf(*net.TCPConn) (State, error) { return State{}, unsupported() }

// State needs Linux.
func (*Held) State() (State, error) { return State{}, unsupported() }

// Resume needs Linux.
func (*Held) Resume() (*net.TCPConn, error) { return nil, unsupported() }

// Descriptor needs Linux.
func (*Held) Descriptor() int { return -1 }

// ResumeDescriptor needs Linux.
func (*Held) ResumeDescriptor() (int, error) { return 0, unsupported() }

// CloseDescriptor needs Linux.
func CloseDescriptor(int) error { return unsupported() }

// ResetDescriptor does nothing.
func ResetDescriptor(int) {}

// Reset needs Linux.
func (*Held) Reset() error { return unsupported() }

// Close closes the connection.
func (h *Held) Close() error { return h.conn.Close() }

// Restore needs Linux.
func Restore(State, Options) (*Held, error) { return nil, unsupported() }
