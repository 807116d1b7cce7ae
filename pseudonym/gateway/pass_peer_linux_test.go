package gateway

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"heddle/internal/netutil"
	"heddle/internal/polltest"
)

// credentials are the user and the groups of a process.
type credentials struct {
	uid, gid int
	groups   []uint32
}

// dial connects as somebody else.
func (i credentials) dial(t *testing.T, file string) *net.UnixConn {
	t.Helper()
	type dialled struct {
		c   net.Conn
		err error
	}
	done := make(chan dialled)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine
		var first unsafe.Pointer
		if len(i.groups) > 0 {
			first = unsafe.Pointer(&i.groups[0])
		}
		// The calls of package syscall change all threads.
		for _, call := range [][4]uintptr{{syscall.SYS_SETGROUPS, uintptr(len(i.groups)), uintptr(first)}, {syscall.SYS_SETRESGID, uintptr(i.gid), uintptr(i.gid), uintptr(i.gid)},
			{syscall.SYS_SETRESUID, uintptr(i.uid), uintptr(i.uid), uintptr(i.uid)}} {
			if _, _, errno := syscall.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
				done <- dialled{nil, errno}
				return
			}
		}
		c, err := net.Dial("unix", file)
		done <- dialled{c, err}
	}()
	d := <-done
	if d.err != nil {
		t.Fatal(d.err)
	}
	return d.c.(*net.UnixConn)
}

// Root, the sidecar's own user and the group of its socket may pass connections. Others may not, even if the mode of the file lets them.
func TestWhoMayPass(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("typed skip: it takes root to be somebody else")
	}
	const nobody, group = 65534, 7070
	dir, err := os.MkdirTemp("", "heddle-pass-") // where others may look
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "sidecar")
	l, err := netutil.ListenUnix(file)
	if err == nil {
		err = errors.Join(os.Chown(file, -1, group), os.Chmod(file, 0o666))
	}
	if err != nil {
		t.Fatal(err)
	}
	in := passed(l)
	defer in.Close()
	client := connected(t)
	accepted := make(chan bool, 1)
	go func() {
		for {
			got, err := in.Accept()
			if err != nil {
				return
			}
			got.Close()
			accepted <- true
		}
	}()
	var many []uint32
	for i := range uint32(500) {
		many = append(many, 10_000+i)
	}
	for name, c := range map[string]struct {
		who credentials
		may bool
	}{
		"root":                 {credentials{0, 0, nil}, true},
		"the group":            {credentials{nobody, group, nil}, true},
		"one more group":       {credentials{nobody, nobody, []uint32{5, group}}, true},
		"one of many groups":   {credentials{nobody, nobody, append([]uint32{group}, many...)}, true},
		"nobody":               {credentials{nobody, nobody, nil}, false},
		"other groups":         {credentials{nobody, nobody, many}, false},
		"in the group of root": {credentials{nobody, 0, nil}, false},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), polltest.Patience)
		to, err := pass(ctx, client, c.who.dial(t, file), greeting{send: []byte("hello")})
		if err == nil {
			<-accepted
		}
		if to != nil || (err == nil) != c.may || !c.may && !errors.Is(err, errForbidden) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}
