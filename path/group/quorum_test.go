package group

import "testing"

func TestQuorum(t *testing.T) {
	type step struct {
		healthy        int
		enough, turned bool
	}
	for name, c := range map[string]struct {
		q     Quorum
		steps []step
	}{
		"strict":                  {Quorum{Min: 2}, []step{{1, false, false}, {2, true, true}, {3, true, false}, {1, false, true}}},
		"degraded from the start": {Quorum{Min: 2, Degrade: true}, []step{{0, false, false}, {1, true, true}, {0, false, true}}},
		"degraded once complete":  {Quorum{Min: 2, Degrade: true, Complete: true}, []step{{1, false, false}, {2, true, true}, {1, true, false}, {0, false, true}, {1, true, true}}},
	} {
		for i, s := range c.steps {
			if turned := c.q.Set(s.healthy); turned != s.turned || c.q.Enough() != s.enough {
				t.Errorf("%s, step %d: enough %v, turned %v", name, i, c.q.Enough(), turned)
			}
		}
		if !c.q.Ran() {
			t.Errorf("%s: it never ran", name)
		}
	}
}
