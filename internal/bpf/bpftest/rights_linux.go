package bpftest

import (
	"errors"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Load fails unless the kernel takes the programs of an object with few rights.
func Load(t *testing.T, object *ebpf.CollectionSpec) {
	t.Helper()
	FewRights(t, func() error {
		all, err := ebpf.NewCollection(object)
		if err == nil {
			all.Close()
		}
		return err
	})
}

// FewRights fails unless load succeeds with no other rights than CAP_BPF and CAP_NET_ADMIN. The kernel takes more of root.
func FewRights(t *testing.T, load func() error) {
	t.Helper()
	refused, failed := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // it ends with the goroutine, since nobody unlocks it
		rights := [2]unix.CapUserData{{Effective: 1 << unix.CAP_NET_ADMIN, Permitted: 1 << unix.CAP_NET_ADMIN},
			{Effective: 1 << (unix.CAP_BPF - 32), Permitted: 1 << (unix.CAP_BPF - 32)}}
		if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &rights[0]); err != nil {
			refused <- err
			return
		}
		failed <- load()
	}()
	select {
	case err := <-refused:
		t.Skip("typed skip: this process has not even these rights:", err)
	case err := <-failed:
		if errors.Is(err, ebpf.ErrNotSupported) {
			t.Skip("typed skip:", err)
		}
		if err != nil {
			t.Errorf("%+v", err)
		}
	}
}
