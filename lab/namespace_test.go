package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"heddle/internal/nstest"
)

// Whoever makes a namespace by ip while a world is up does not keep the world's from being removed.
func TestNamespacesBesideThoseOfIP(t *testing.T) {
	if !nstest.OwnMounts(t) {
		return
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil { // as after the machine's start
		t.Fatal(err)
	}
	ours := prefix + "beside-ip"
	n, err := createNamespace(ours)
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	for _, args := range [][]string{{"add", "of-ip"}, {"exec", ours, "true"}, {"delete", "of-ip"}} {
		if out, err := exec.Command("ip", append([]string{"netns"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("ip netns %v: %v\n%s", args, err, out)
		}
	}
	if err := deleteNamespace(ours); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(netnsDir, ours)); !os.IsNotExist(err) {
		t.Errorf("the name is left: %v", err)
	}
}
