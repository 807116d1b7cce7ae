// Package ovstest runs an Open vSwitch for tests. Do not import it outside tests.
package ovstest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"

	"heddle/internal/openvswitch"
)

// Start is [openvswitch.Start] of one that ends with the test. Without Open vSwitch it skips the test.
func Start(t testing.TB, in func(func() error) error) *openvswitch.Switch {
	t.Helper()
	dir, err := os.MkdirTemp("", "heddle-ovs-") // t.TempDir is too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s, err := openvswitch.Start(context.WithoutCancel(t.Context()), dir, in)
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("typed skip: apt-get install openvswitch-switch:", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
