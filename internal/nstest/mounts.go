package nstest

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// insideMounts is set in the process that [OwnMounts] starts.
const insideMounts = "HEDDLE_TEST_OWN_MOUNTS"

// OwnMounts runs a test again in a process with mounts of its own, and reports whether this is that process. The test returns elsewhere.
func OwnMounts(t *testing.T) (inside bool) {
	t.Helper()
	if os.Getenv(insideMounts) != "" {
		return true
	}
	if os.Getuid() != 0 {
		t.Skip("typed skip: only root can mount")
	}
	again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	again.Env = append(os.Environ(), insideMounts+"=1")
	again.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}
