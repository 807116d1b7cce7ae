package handshake

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"heddle/experiments/censor"
	"heddle/internal/clienthello"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/observe"
	"heddle/observe/inspect"
)

// wire is what one capture holds of QUIC.
type wire struct {
	initials int // Initial packets
	long     int // datagrams that begin with a long header: Initial, 0-RTT, Handshake, Retry, version negotiation
	up, down int // datagrams that begin with a short header: 1-RTT
	names    []inspect.Name
}

// watch captures at the client's device of each access network, and what each censor gets to see; stop gives what
// they hold, by the network's name, and by the censor's as NETWORK-censor.
func (w *world) watch() (stop func() map[string]wire) {
	w.t.Helper()
	dir, places := w.t.TempDir(), map[string]string{}
	for _, way := range lab.Ways {
		places[way] = "client/" + way
	}
	for _, way := range censored {
		places[way+"-censor"] = way + "-gw/" + censor.Device
	}
	end := labtest.Capture(w.t, w.Instance, dir, places)
	return func() map[string]wire {
		w.t.Helper()
		end()
		session, err := observe.Load("handshake", dir, observe.Options{})
		if err != nil {
			w.t.Fatal(err)
		}
		seen := map[string]wire{}
		for _, o := range session.Observers {
			if o.Stopped != "" || o.Missed > 0 {
				w.t.Fatalf("capture of %s: %s, %d missed", o.Name, o.Stopped, o.Missed)
			}
			held := count(w.t, labtest.File(dir, o.Name))
			for _, f := range o.Flows {
				for _, n := range f.Names {
					if !slices.Contains(held.names, n) {
						held.names = append(held.names, n)
					}
				}
			}
			seen[o.Name] = held
		}
		return seen
	}
}

func count(t *testing.T, file string) (held wire) {
	t.Helper()
	for _, p := range labtest.Packets(t, file) {
		udp, ok := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
		if !ok || udp.SrcPort != 443 && udp.DstPort != 443 || len(udp.Payload) == 0 {
			continue
		}
		held.initials += clienthello.Initials(udp.Payload)
		switch {
		case udp.Payload[0]&0x80 != 0:
			held.long++
		case udp.DstPort == 443:
			held.up++
		default:
			held.down++
		}
	}
	return held
}

// shows is a network on which something of a handshake shows.
type shows struct {
	where string
	held  wire
}

func (s *shows) Error() string {
	return fmt.Sprintf("%s shows %d Initials, %d long headers and the names %v", s.where, s.held.initials, s.held.long, s.held.names)
}

// silent says what shows of a handshake, or of the server's name, on the censored networks, if anything does.
func silent(seen map[string]wire) error {
	var errs []error
	for _, way := range censored {
		for _, name := range []string{way, way + "-censor"} {
			if h := seen[name]; h.initials > 0 || h.long > 0 || len(h.names) > 0 {
				errs = append(errs, &shows{name, h})
			}
		}
	}
	return errors.Join(errs...)
}
