package bench

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/lab"
	"heddle/lab/peer"
)

func TestMain(m *testing.M) {
	lab.MaybeEnter()
	os.Exit(m.Run())
}

// TestEveryClientCarriesTraffic runs each kind of client once over the world without limits, for a second each way.
func TestEveryClientCarriesTraffic(t *testing.T) {
	if err := lab.Supported(); errors.Is(err, lab.ErrUnsupported) {
		t.Skip(err)
	}
	heddle := filepath.Join(t.TempDir(), "heddle")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", heddle, "heddle/cmd/heddle").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	topologies := wireguardTopologies(false)
	unlimited := topologies[len(topologies)-1]
	t.Cleanup(func() {
		if err := unlimited.down(); err != nil {
			t.Error(err)
		}
	})
	if err := unlimited.up(t.Context(), t.TempDir(), heddle); err != nil {
		t.Fatal(err)
	}
	for _, c := range unlimited.clients {
		down, up, err := unlimited.measure(t.Context(), c, 1, time.Second, 0)
		if errors.Is(err, peer.ErrMissing) {
			t.Skip(err)
		}
		if err != nil || down <= 0 || up <= 0 {
			t.Errorf("%s: down %v, up %v, %v", c.name, down, up, err)
		}
	}
}

func TestAClientThatFailsIsSaidSo(t *testing.T) {
	if err := lab.Supported(); errors.Is(err, lab.ErrUnsupported) {
		t.Skip(err)
	}
	topologies := wireguardTopologies(true)
	unlimited := topologies[len(topologies)-1]
	t.Cleanup(func() {
		if err := unlimited.down(); err != nil {
			t.Error(err)
		}
	})
	if err := unlimited.up(t.Context(), t.TempDir(), "/bin/false"); err != nil {
		t.Fatal(err)
	}
	_, _, err := unlimited.measure(t.Context(), unlimited.clients[1], 1, time.Second, 0)
	if errors.Is(err, peer.ErrMissing) {
		t.Skip(err)
	}
	if err == nil || !strings.Contains(err.Error(), "client ended") {
		t.Errorf("got %v", err)
	}
}
