package mosh

import (
	"errors"
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
	seen   string // directory of the last captures
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
	dir, places := w.t.TempDir(), map[string]string{}
	w.seen = dir
	for _, way := range lab.Ways {
		places[way] = "client/" + way
	}
	end := labtest.Capture(w.t, w.Instance, dir, places)
	return func() map[string]*observe.Capture {
		w.t.Helper()
		end()
		seen := map[string]*observe.Capture{}
		for way := range places {
			seen[way] = labtest.Read(w.t, labtest.File(dir, way), nil)
		}
		return seen
	}
}
