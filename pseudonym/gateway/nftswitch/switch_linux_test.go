package nftswitch

import (
	"testing"
	"time"

	"github.com/google/nftables"

	"heddle/internal/nft"
	"heddle/pseudonym/gateway/lead"
	"heddle/pseudonym/gateway/lead/leadtest"
)

var kind = leadtest.Kind{
	New:    func() (leadtest.Switch, error) { return New() },
	Remove: func(*leadtest.World) error { return nft.Remove(nft.Inet(Table)) },
	Has: func(w *leadtest.World, what string) (bool, error) {
		all, err := elements(w, what)
		return len(all) > 0, err
	},
}

func TestSwitch(t *testing.T) { leadtest.Run(t, func(*testing.T) leadtest.Kind { return kind }) }

func TestRefusals(t *testing.T) {
	leadtest.Refusals(t, func(*testing.T) leadtest.Kind { return kind })
}

// elements returns what a set has.
func elements(w *leadtest.World, set string) ([]nftables.SetElement, error) {
	conn, err := nft.Connect()
	if err != nil {
		return nil, err
	}
	of := newSets(nft.Inet(Table), w.V6)
	return conn.GetSetElements(map[string]*nftables.Set{"to": of.to, "back": of.back, "finished": of.finished, "answered": of.answered, "ended": of.ended}[set])
}

// An entry has a time, so that it ends if no packet comes any more.
func TestEntriesEnd(t *testing.T) {
	for name, v6 := range map[string]bool{"IPv4": false, "IPv6": true} {
		t.Run(name, func(t *testing.T) {
			w := leadtest.NewWorld(t, kind, v6)
			near, far := w.Moved()
			w.Talk(near, far)
			w.Finish(near, far)
			w.Gateway.Do(t, func() error {
				for set, want := range map[string]time.Duration{"to": lead.Idle, "back": lead.Idle, "finished": lead.Idle, "answered": lead.Idle, "ended": 2 * lead.Idle} {
					if all, err := elements(w, set); err != nil || len(all) != 1 || all[0].Timeout != want || all[0].Expires > want {
						t.Errorf("%s has %+v, %v", set, all, err)
					}
				}
				return nil
			})
		})
	}
}
