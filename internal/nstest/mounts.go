package nstest

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// insideMounts is set in the process that [OwnMounts] starts.
const insideMounts = "HEDDLE_TEST_OWN_MOUNTS"

// OwnMounts runs a test again in a process with mounts of its own, and reports whether this is that process. The test returns elsewhere. Flags are more of the
// process, such as -test.parallel.
func OwnMounts(t *testing.T, flags ...string) (inside bool) {
	t.Helper()
	if os.Getenv(insideMounts) != "" {
		return true
	}
	if os.Getuid() != 0 {
		t.Skip("typed skip: only root can mount")
	}
	again := exec.Command(os.Args[0], append(flags, "-test.run=^"+t.Name()+"$", "-test.v")...)
	again.Env = append(os.Environ(), insideMounts+"=1")
	again.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// PinsBPF returns a directory with a BPF file system of the test's own. Call it in a process with mounts of its own: see [OwnMounts].
func PinsBPF(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}
