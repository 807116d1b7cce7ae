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
	topologies := wireguardTopologies(false, time.Second, 0)
	unlimited := topologies[len(topologies)-1]
	t.Cleanup(func() {
		if err := unlimited.down(); err != nil {
			t.Error(err)
		}
	})
	if err := unlimited.up(t.Context(), &stage{heddle: heddle, work: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	for _, v := range unlimited.cases {
		figures, err := v.measure(t.Context(), unlimited.stage, 1)
		if errors.Is(err, peer.ErrMissing) {
			t.Skip(err)
		}
		if err != nil || len(figures) != 2 || figures[0].value <= 0 || figures[1].value <= 0 {
			t.Errorf("%s: %v, %v", v.name, figures, err)
		}
	}
}

func TestAClientThatFailsIsSaidSo(t *testing.T) {
	if err := lab.Supported(); errors.Is(err, lab.ErrUnsupported) {
		t.Skip(err)
	}
	topologies := wireguardTopologies(true, time.Second, 0)
	unlimited := topologies[len(topologies)-1]
	t.Cleanup(func() {
		if err := unlimited.down(); err != nil {
			t.Error(err)
		}
	})
	if err := unlimited.up(t.Context(), &stage{heddle: "/bin/false", work: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	_, err := unlimited.cases[1].measure(t.Context(), unlimited.stage, 1)
	if errors.Is(err, peer.ErrMissing) {
		t.Skip(err)
	}
	if err == nil || !strings.Contains(err.Error(), "client ended") {
		t.Errorf("got %v", err)
	}
}
