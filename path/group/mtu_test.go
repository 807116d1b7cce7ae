package group

import (
	"testing"
	"time"

	"heddle/path"
)

func TestCeilingNarrowsAtOnceAndWidensLate(t *testing.T) {
	var c Ceiling
	began := time.Unix(0, 0)
	for _, step := range []struct {
		after      time.Duration
		size, want int
	}{
		{0, 0, 0},
		{time.Second, 1361, 1361},
		{2 * time.Second, 1280, 1280},
		{3 * time.Second, 1441, 1280},
		{12 * time.Second, 1400, 1280}, // what counts is the smallest since it could widen
		{14 * time.Second, 1441, 1400},
		{15 * time.Second, 1441, 1400},
		{16 * time.Second, 1400, 1400}, // narrow again, so the wait begins anew
		{26 * time.Second, 1441, 1400},
		{27 * time.Second, 0, 1400}, // unknown changes nothing
		{35 * time.Second, 1441, 1400},
		{36 * time.Second, 1441, 1441},
	} {
		if got := c.Follow(began.Add(step.after), Narrow{"a", step.size}); got.Size != step.want {
			t.Errorf("after %v, %d gives %d, want %d", step.after, step.size, got.Size, step.want)
		}
	}
}

// sized is a path that knows what it carries.
type sized struct{ info path.Info }

func (p *sized) Describe() path.Info { return p.info }

func TestNarrowest(t *testing.T) {
	device, proxy := &sized{path.Info{MTU: 1280, Fragments: true, Ready: true}}, &sized{path.Info{MTU: 1361, Ready: true}}
	unknown, refused := &sized{path.Info{Ready: true}}, &sized{path.Info{MTU: 576}}
	g := &Group{}
	for i, p := range []path.Path{unknown, refused, device, proxy} {
		g.Members = append(g.Members, newMember(i, path.Spec{Name: []string{"unknown", "refused", "device", "proxy"}[i]}, p))
	}
	now := time.Unix(0, 0)
	want := func(what string, all, whole Narrow) {
		t.Helper()
		if a, w := g.Narrowest(now); a != all || w != whole {
			t.Errorf("%s: %v and %v, want %v and %v", what, a, w, all, whole)
		}
	}
	want("as described", Narrow{"device", 1280}, Narrow{"proxy", 1361})
	device.info = path.Info{Fragments: true}
	want("while the device is gone", Narrow{"device", 1280}, Narrow{"proxy", 1361})
	device.info = path.Info{MTU: 1500, Fragments: true, Ready: true}
	want("once it is back and wider", Narrow{"proxy", 1361}, Narrow{"proxy", 1361})
	g.Members[2].TooLarge(now, 1300)
	want("after a router reported", Narrow{"device", 1300}, Narrow{"proxy", 1361})
	g.Members[2].TooLarge(now, 68)
	want("after a report that would stop QUIC", Narrow{"device", leastReport}, Narrow{"proxy", 1361})
	now = now.Add(reportFor)
	want("once the report is old", Narrow{"proxy", 1361}, Narrow{"proxy", 1361})
}
