package labtest

import (
	"errors"
	"net/netip"
	"testing"

	"heddle/lab"
	"heddle/lab/peer"
)

// Overlay is a [peer.Overlay] whose methods fail the test on errors. What they start ends with the test.
type Overlay struct {
	*peer.Overlay
	t *testing.T
}

// UpOverlay makes a world of devices that ends with the test.
func UpOverlay(t *testing.T, w lab.World) Overlay {
	t.Helper()
	in := Up(t, w)
	o, err := peer.NewOverlay(Heddle, t.TempDir(), in)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Stop)
	return Overlay{o, t}
}

// Try runs a heddle command that may fail.
func (o Overlay) Try(host, input string, args ...string) (out, talk string, err error) {
	return o.Overlay.Run(o.t.Context(), host, input, args...)
}

// Run runs a heddle command that must succeed, and returns its output.
func (o Overlay) Run(host string, args ...string) string {
	o.t.Helper()
	out, talk, err := o.Try(host, "", args...)
	if err != nil {
		o.t.Fatalf("%s: heddle %s: %v\n%s", host, args, err, talk)
	}
	return out
}

// Start starts a long-running command and waits until it prints word.
func (o Overlay) Start(host, word string, args ...string) *peer.Process {
	o.t.Helper()
	return o.started(o.Overlay.Start(o.t.Context(), host, word, args...))
}

// Node is [peer.Overlay.Node].
func (o Overlay) Node(host string, flags ...string) *peer.Process {
	o.t.Helper()
	return o.started(o.Overlay.Node(o.t.Context(), host, flags...))
}

// StreamServer is [peer.Overlay.StreamServer].
func (o Overlay) StreamServer(host string, at netip.AddrPort, command ...string) *peer.Process {
	o.t.Helper()
	return o.started(o.Overlay.StreamServer(o.t.Context(), host, at, command...))
}

// StreamDial is [peer.Overlay.StreamDial].
func (o Overlay) StreamDial(name string, listen netip.AddrPort, host string, at netip.AddrPort, flags ...string) *peer.Process {
	o.t.Helper()
	return o.started(o.Overlay.StreamDial(o.t.Context(), name, listen, host, at, flags...))
}

// Key is [peer.Overlay.Key].
func (o Overlay) Key(host string) string {
	o.t.Helper()
	key, err := o.Overlay.Key(o.t.Context(), host)
	if err != nil {
		o.t.Fatal(err)
	}
	return key
}

// SSH is [peer.SSHServer] on a host. Without an sshd it skips the test.
func (o Overlay) SSH(host string) *peer.SSH {
	o.t.Helper()
	s, err := peer.SSHServer(o.t.Context(), o.Host(host), o.t.TempDir())
	if errors.Is(err, peer.ErrMissing) {
		o.t.Skip(err)
	} else if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(s.Stop)
	return s
}

func (o Overlay) started(p *peer.Process, err error) *peer.Process {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(p.Stop)
	return p
}

// Pass is [peer.Overlay.Pass].
func (o Overlay) Pass(name, host string, at netip.Addr, flags ...string) (file string) {
	o.t.Helper()
	file, err := o.Overlay.Pass(o.t.Context(), name, host, at, flags...)
	if err != nil {
		o.t.Fatal(err)
	}
	return file
}
