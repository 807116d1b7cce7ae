package config

import (
	"strings"
	"testing"
)

func TestPeerAndNodesByABoard(t *testing.T) {
	board := someKey(t) + "@192.0.2.7:7300"
	good := goodDial(t)
	good.Via, good.To, good.Key = nil, "", ""
	good.Board, good.Paths, good.Shares = board, 3, "2of3"
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*StreamDial)
		want   string
	}{
		"bad board":        {func(d *StreamDial) { d.Board = "192.0.2.7:7300" }, "--board"},
		"no board":         {func(d *StreamDial) { d.Board = "" }, "--key: the peer's key is missing"},
		"both":             {func(d *StreamDial) { d.Via = []string{"a=if:eth0"} }, "--paths: nodes are to be chosen, and paths are given too"},
		"too many":         {func(d *StreamDial) { d.Paths = 1000 }, "--paths"},
		"other shares":     {func(d *StreamDial) { d.Shares = "2of4" }, "4 shares, and there are 3 paths"},
		"pick":             {func(d *StreamDial) { d.Pick = "nicest" }, "--pick"},
		"weights unknown":  {func(d *StreamDial) { d.Schedule, d.Weight = "weighted", []string{"a=1"} }, "--weight"},
		"a bad key anyway": {func(d *StreamDial) { d.Key = "x" }, "--key"},
		"kernel":           {func(d *StreamDial) { d.Backend, d.Shares = BackendMPTCP, "none" }, "--paths: the kernel backends go by the nodes that are given"},
	} {
		d := good
		c.change(&d)
		if err := d.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func TestRegisteringNeedsAnAddress(t *testing.T) {
	s := DefaultStreamServe()
	s.To, s.Allow, s.Board = "127.0.0.1:22", []string{AnyKey}, someKey(t)+"@192.0.2.7:7300"
	if err := s.Check(); err == nil || !strings.Contains(err.Error(), "--address") {
		t.Errorf("on all addresses, and none named: %v", err)
	}
	s.Address = []string{"files.example:4470"}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	s.Address, s.Listen = nil, "192.0.2.9:4470"
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}
