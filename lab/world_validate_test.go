package lab

import (
	"net/netip"
	"strings"
	"testing"
)

func TestValidateNamesTheMistake(t *testing.T) {
	for want, spoil := range map[string]func(*World){
		"no name for a world":    func(w *World) { w.Name = "A/B" },
		"two hosts are called a": func(w *World) { w.Hosts[1].Name = "a" },
		"no name for a host":     func(w *World) { w.Hosts[0].Name = "../a" },
		"no host \"c\"":          func(w *World) { w.Links[0].A.Host = "c" },
		"no name for a device":   func(w *World) { w.Links[0].A.Device = "a-name-that-is-too-long" },
		"\"lo\" is no name":      func(w *World) { w.Links[0].A.Device = "lo" },
		"MTU 100":                func(w *World) { w.Links[0].MTU = 100 },
		"link link: delay":       func(w *World) { w.Links[0].AtoB.Delay = -1 },
		"masquerades behind":     func(w *World) { w.Hosts[0].Masquerade = "other" },
		"which is no device":     func(w *World) { w.Hosts[0].Routes = defaults("10.0.0.2", "fd00::2", "other", 0) },
		"mixes families": func(w *World) {
			w.Hosts[0].Routes = []Route{{netip.MustParsePrefix("::/0"), netip.MustParseAddr("10.0.0.2"), "link", 0}}
		},
		"its client \"c\"":        func(w *World) { w.Client = "c" },
		"for a link, or is taken": func(w *World) { w.Links = append(w.Links, w.Links[0]) },
	} {
		w := Pair()
		spoil(&w)
		if err := w.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
	for _, w := range Worlds() {
		if err := w.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestOneWayAloneFillsTheSharedBottleneck(t *testing.T) {
	rates := map[string]int64{}
	for _, l := range ThreeWaysShared().Links {
		rates[l.Name] = l.BtoA.Rate // towards the client
	}
	if rates["server"] == 0 {
		t.Fatal("the server's link has no limit")
	}
	for _, way := range Ways {
		if rates[way] < 2*rates["server"] {
			t.Errorf("%s carries %d bit/s, and the server sends %d", way, rates[way], rates["server"])
		}
	}
}
