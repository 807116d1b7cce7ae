package ovsswitch

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"heddle/internal/openflow"
)

// look waits until Open vSwitch has looked at all that its cache has, by the command revalidator/wait of its process (ovs-vswitchd(8)). It looks
// when a flow changes, and may have begun before the last change. If it has ended by the time that it knows the command, that waits for the next look,
// half a second. So look changes a flow of the bridge now and then while it waits; nil
// changes none.
func look(socket string, bridge *openflow.Conn, patience time.Duration) error {
	dir := filepath.Dir(socket)
	pid, err := os.ReadFile(filepath.Join(dir, "ovs-vswitchd.pid"))
	if err != nil {
		return err
	}
	c, err := net.DialTimeout("unix", filepath.Join(dir, "ovs-vswitchd."+strings.TrimSpace(string(pid))+".ctl"), patience)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := c.Write([]byte(`{"id":0,"method":"revalidator/wait","params":[]}`)); err != nil {
		return err
	}
	answered := make(chan error, 1)
	go func() {
		var answer struct{ Error any }
		err := json.NewDecoder(c).Decode(&answer)
		if err == nil && answer.Error != nil {
			err = fmt.Errorf("revalidator/wait: %v", answer.Error)
		}
		answered <- err
	}()
	nudge := time.NewTicker(nudgeEach)
	defer nudge.Stop()
	for {
		select {
		case err := <-answered:
			return err
		case <-nudge.C:
			if bridge == nil {
				continue
			}
			if err := bridge.Change(touch.Add()); err != nil {
				return err
			}
		}
	}
}

// nudgeEach is more than a look takes.
const nudgeEach = 20 * time.Millisecond

// patience is how long Open vSwitch may take for a look on a busy machine.
const patience = 10 * time.Second

// looks is how often Open vSwitch looks at its cache until that must follow a change: a look that had begun, one that began while the change was on
// its way inside Open vSwitch, and one more.
const looks = 3

// forget waits until the cache must follow all changes that the bridge has confirmed. It changes a flow each time, so that Open vSwitch looks at once.
func forget(socket string, bridge *openflow.Conn) error {
	for range looks {
		if err := bridge.Change(touch.Add()); err != nil {
			return err
		}
		if err := look(socket, bridge, patience); err != nil {
			return err
		}
	}
	return nil
}

// touch is a flow that no packet matches: one of TCP from nowhere.
var touch = openflow.Flow{Cookie: cookie(0, roleTouch), Match: tcp(nowhere, nowhere), Hard: time.Second}

var nowhere = netip.AddrPortFrom(netip.IPv4Unspecified(), 0)

// Settle waits until Open vSwitch does with all packets what the flows say now, so that none of a connection that is led comes to this machine.
func (s *Switch) Settle() { s.settling.wait(s.end) }

// settle does what Settle waits for.
func (s *Switch) settle() {
	bridge, err := s.current()
	if err == nil {
		err = forget(s.o.socket(), bridge)
	}
	if err != nil {
		select {
		case <-time.After(cacheFor):
		case <-s.end:
		}
	}
}

// together does something once for all goroutines that wait for it. A goroutine that comes while it is being done waits for the next time.
type together struct {
	mu   sync.Mutex
	next chan struct{} // closed when it is done, or nil if nobody waits
	wake chan struct{} // has room for one
}

func newTogether() *together { return &together{wake: make(chan struct{}, 1)} }

func (t *together) wait(end <-chan struct{}) {
	t.mu.Lock()
	if t.next == nil {
		t.next = make(chan struct{})
	}
	next := t.next
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
	select {
	case <-next:
	case <-end:
	}
}

func (t *together) serve(end <-chan struct{}, do func()) {
	for {
		select {
		case <-end:
			return
		case <-t.wake:
		}
		t.mu.Lock()
		done := t.next
		t.next = nil
		t.mu.Unlock()
		if done == nil { // it was done for the one who woke it
			continue
		}
		do()
		close(done)
	}
}
