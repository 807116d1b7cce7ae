package mosh

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
	"heddle/observe"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// world is threeways with a server for mosh.
type world struct {
	*lab.Instance
	t      *testing.T
	server *peer.MoshHost
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel() // most of a session is waiting
	in := labtest.Up(t, lab.ThreeWays())
	w := &world{Instance: in, t: t}
	var err error
	w.server, err = peer.Mosh(t.Context(), in.Host("server"), t.TempDir())
	if errors.Is(err, peer.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// over are the flags of a session over all three networks.
func over(every string) []string {
	flags := []string{"--schedule", "uniform", "--every", every, "--seed", "1"}
	for _, way := range lab.Ways {
		flags = append(flags, "--via", way+"=if:"+way)
	}
	return flags
}

// bash is a shell that prints the same on every machine.
var bash = []string{"env", "PS1=$ ", "bash", "--norc", "--noprofile", "-i"}

// watch captures at the client's device of each access network.
func (w *world) watch() (stop func() map[string]*observe.Capture) {
	w.t.Helper()
	dir := w.t.TempDir()
	running := map[string]*lab.Capture{}
	for _, way := range lab.Ways {
		c, err := w.Capture(w.t.Context(), "client", way, filepath.Join(dir, way+".pcapng"))
		if err != nil {
			w.t.Fatal(err)
		}
		running[way] = c
	}
	return func() map[string]*observe.Capture {
		seen := map[string]*observe.Capture{}
		for way, c := range running {
			if n, err := c.Stop(); err != nil || n.Dropped > 0 {
				w.t.Errorf("capture of %s: %+v, %v", way, n, err)
			}
			f, err := os.Open(filepath.Join(dir, way+".pcapng"))
			if err != nil {
				w.t.Fatal(err)
			}
			defer f.Close()
			if seen[way], err = observe.Read(f, nil); err != nil {
				w.t.Fatalf("%s: %v", way, err)
			}
		}
		return seen
	}
}
