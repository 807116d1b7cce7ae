package bench

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"heddle/internal/polltest"
	"heddle/lab/labtest"
)

// TestQUICGoesThroughTheRelay measures quic-go once, for a fraction of a second each way, switching between three ways.
func TestQUICGoesThroughTheRelay(t *testing.T) {
	labtest.Need(t)
	q := &quicSession{quicPlace: quicPlaces[1], library: "quic-go", directions: []string{"down", "up"}}
	top := &topology{name: "one-exit/quic-go", world: q.world(), serve: q.serve}
	t.Cleanup(func() {
		if err := top.down(); err != nil {
			t.Error(err)
		}
	})
	if err := top.up(t.Context(), &stage{heddle: labtest.Heddle, work: t.TempDir(), say: t.Logf}); err != nil {
		t.Fatal(err)
	}
	polltest.Again(t, func(try int) error { // the handshake may take longer than that
		q.length = 500 * time.Millisecond << try
		figures, err := q.variant("50ms", "50ms").measure(t.Context(), top.stage, 1)
		if err != nil || len(figures) != 2 || figures[0].value <= 0 || figures[1].value <= 0 {
			return fmt.Errorf("%v, %w", figures, err)
		}
		return nil
	})
}

// TestQUICCases are those that the paper's figure and its reader ask for.
func TestQUICCases(t *testing.T) {
	b := QUIC()
	names := map[string]bool{}
	for _, top := range b.topologies(false) {
		for _, v := range top.cases {
			names[top.caseName(v)] = true
		}
		if baseline := top.cases[0].name; baseline != "none" {
			t.Errorf("%s is compared with %s", top.name, baseline)
		}
	}
	for _, place := range []string{"distinct", "one-exit"} {
		for _, library := range []string{"quic-go", "aioquic", "quiche"} {
			for _, every := range []string{"none", "500ms", "200ms", "100ms", "50ms", "40ms", "30ms", "20ms", "10ms"} {
				if name := place + "/" + library + "/" + every; !names[name] {
					t.Errorf("no case %s", name)
				}
			}
		}
	}
	for _, place := range []string{"distinct", "one-exit", "exit", "tunnel"} {
		for _, every := range []string{"100ms-reorder", "10ms-reorder"} {
			if name := place + "/aioquic/" + every; !names[name] {
				t.Errorf("no case %s", name)
			}
		}
	}
	for _, library := range []string{"quic-go", "aioquic", "quiche"} {
		for _, every := range []string{"none", "100ms", "100ms-reorder", "10ms", "10ms-reorder"} {
			for _, place := range []string{"distinct", "exit"} {
				if name := "shared/" + place + "/" + library + "/" + every; !names[name] {
					t.Errorf("no case %s", name)
				}
			}
		}
		for _, aid := range []string{"100ms-drain", "200ms", "200ms-drain", "50p", "auto", "100ms-at-gaps"} {
			if name := "shared/distinct/" + library + "/" + aid; !names[name] {
				t.Errorf("no case %s", name)
			}
		}
	}
	for name, want := range map[string]bool{
		"shared/distinct/ngtcp2/100ms": true, "shared/distinct/ngtcp2/auto": true, "shared/exit/ngtcp2/10ms": true, "shared/exit/aioquic/auto": true,
		"shared/distinct/ngtcp2/10ms": false, // its server would end
	} {
		if names[name] != want {
			t.Errorf("case %s: %v", name, names[name])
		}
	}
	quick := map[bool]int{}
	for _, top := range b.topologies(true) {
		quick[strings.HasPrefix(top.name, "shared/")] += len(top.cases)
	}
	if quick[false] != 24 || quick[true] != 5 { // two rounds of five and of three seconds each: under five minutes
		t.Errorf("--quick takes %v cases", quick)
	}
	for _, name := range []string{"distinct/quiche/100ms/down", "shared/distinct/quiche/100ms/down"} {
		if paper := b.paper(name); paper == nil || *paper != paperQUIC {
			t.Errorf("the paper's figure for %s: %v", name, paper)
		}
	}
	for _, name := range []string{"distinct/quiche/10ms/down", "one-exit/quiche/100ms/down", "shared/exit/quiche/100ms/down"} {
		if paper := b.paper(name); paper != nil {
			t.Errorf("a figure that the paper does not have for %s: %v", name, *paper)
		}
	}
}
