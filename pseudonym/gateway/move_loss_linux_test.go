package gateway

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"heddle/internal/nstest"
	"heddle/internal/polltest"
)

// loses drops one packet of TCP that arrives in a namespace, the nth of a visit.
const loses = `table netdev lose
delete table netdev lose
table netdev lose {
	chain in {
		type filter hook ingress device net priority -500
		%s meta l4proto tcp numgen inc mod 1000000 == %d counter drop
	}
}`

// segment is one of TCP, in one direction.
type segment struct {
	outgoing bool // from the gateway's machine to the client
	seq      uint32
	size     int
	syn, fin bool
}

// copies counts how often segments were sent.
type copies struct {
	mu   sync.Mutex
	seen map[segment]int
}

func (c *copies) note(p nstest.Passed) {
	tcp, ok := gopacket.NewPacket(p.Bytes, layers.LayerTypeIPv4, gopacket.NoCopy).Layer(layers.LayerTypeTCP).(*layers.TCP)
	if !ok || len(tcp.Payload) == 0 && !tcp.SYN && !tcp.FIN {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[segment{p.Outgoing, tcp.Seq, len(tcp.Payload), tcp.SYN, tcp.FIN}]++
}

// take returns the segment that was sent the most often since it was called last.
func (c *copies) take() (most segment, times int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s, n := range c.seen {
		if n > times {
			most, times = s, n
		}
	}
	c.seen = map[segment]int{}
	return most, times
}

// Whichever packet of a connection that moves is lost, it arrives when its sender sends it once more. So a loss stalls the connection for one timeout at
// most.
func TestMoveWithALoss(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("typed skip: apt-get install nftables:", err)
	}
	m := newMoving(t, places4, false)
	sent := &copies{seen: map[segment]int{}}
	tap := m.gateway.Tap(t, sent.note, "net")
	for _, c := range []struct {
		to      nstest.Namespace
		packets string
	}{{m.gateway, "ip daddr 192.0.2.1"}, {m.client, "ip saddr 192.0.2.1"}} {
		for n := 1; n < 10; n++ { // the first ones of both sides are sent before there is a connection
			nft := func(args ...string) (string, error) {
				var out []byte
				err := c.to.Run(func() (err error) {
					out, err = exec.Command("nft", args...).CombinedOutput()
					return err
				})
				return string(out), err
			}
			polltest.AgainAfter(t, 50*time.Millisecond, func(int) error {
				if out, err := nft(fmt.Sprintf(loses, c.packets, n)); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				conn, _ := m.visit(m.config)
				m.echo(conn, 10_000)
				conn.Close()
				tap.Drain()
				lost, err := nft("list", "table", "netdev", "lose")
				if !strings.Contains(lost, "packets 1 ") {
					err = errors.Join(err, fmt.Errorf("not one packet was lost:\n%s", lost))
				}
				if s, times := sent.take(); times > 2 {
					err = errors.Join(err, fmt.Errorf("%s, packet %d is lost: %+v was sent %d times", c.packets, n+1, s, times))
				}
				return err
			})
		}
		c.to.Do(t, func() error { return exec.Command("nft", "delete table netdev lose").Run() })
	}
}
