package stripe

import (
	"testing"
	"testing/synctest"

	"heddle/path"
)

// Each path is given the peer's name, to have it looked up where the path leads.
func TestPathsGetTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ListenOptions{}, &road{delay: ms, rate: 1e6}, &road{delay: ms, rate: 1e6})
		o := w.options()
		to, err := path.HostPort("files.example", 4470)
		if err != nil {
			t.Fatal(err)
		}
		o.To = to
		client, server := w.open(o)
		for _, r := range w.roads {
			r.mu.Lock()
			if r.asked != to {
				t.Errorf("path %s was given %v", r.name, r.asked)
			}
			r.mu.Unlock()
		}
		if at := client.RemoteAddr(); at.String() != "files.example:4470" || at.Network() != "tcp" {
			t.Errorf("the peer is %v", at)
		}
		closeBoth(t, client, server)
		w.listener.Close()
	})
}
