package bench

import (
	"errors"
	"strings"
	"testing"
	"time"

	"heddle/lab/labtest"
	"heddle/lab/peer"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// TestEveryClientCarriesTraffic runs each kind of client once over the world without limits, for a second each way.
func TestEveryClientCarriesTraffic(t *testing.T) {
	labtest.Need(t)
	topologies := wireguardTopologies(false, time.Second, 0)
	unlimited := topologies[len(topologies)-1]
	t.Cleanup(func() {
		if err := unlimited.down(); err != nil {
			t.Error(err)
		}
	})
	if err := unlimited.up(t.Context(), &stage{heddle: labtest.Heddle, work: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	for _, v := range unlimited.cases {
		if figures := persistent(t, v, unlimited.stage); len(figures) != 2 || figures[0].value <= 0 || figures[1].value <= 0 {
			t.Errorf("%s: %v", v.name, figures)
		}
	}
}

// persistent measures a variant, again where that failed, as often as a bench does.
func persistent(t *testing.T, v variant, s *stage) (figures []figure) {
	t.Helper()
	var err error
	for range attempts {
		if figures, err = v.measure(t.Context(), s, 1); errors.Is(err, peer.ErrMissing) {
			t.Skip(err)
		} else if err == nil {
			return figures
		}
	}
	t.Fatalf("%s: %v", v.name, err)
	return nil
}

func TestAClientThatFailsIsSaidSo(t *testing.T) {
	labtest.Need(t)
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
