package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/errhint"
	"heddle/internal/netutil"
	"heddle/internal/nstest"
	"heddle/internal/polltest"
	"heddle/internal/tcprepair"
)

// recorder notes what a gateway has done to connections, and does nothing.
type recorder struct {
	mu    sync.Mutex
	calls []string
	fails string // the call that fails
}

func (n *recorder) note(call string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, call)
	if strings.HasPrefix(call, n.fails) && n.fails != "" {
		return &errhint.Error{What: call, Why: "it fails", Hint: "another hint"}
	}
	return nil
}

func (n *recorder) Hold(c *net.TCPConn) (Hold, error) { return n, n.note("hold") }
func (n *recorder) Lead(tenant netip.AddrPort) error  { return n.note("lead " + tenant.String()) }
func (n *recorder) LeadDirect(tenant netip.AddrPort) error {
	return n.note("lead-direct " + tenant.String())
}
func (n *recorder) Resume() error { return n.note("resume") }
func (n *recorder) Reset() error  { return n.note("reset") }
func (n *recorder) Close() error  { return n.note("close") }

func (n *recorder) await(t *testing.T, want ...string) {
	t.Helper()
	polltest.Await(t, strings.Join(want, ", "), func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return slices.Equal(n.calls, want)
	})
}

// holds serves holds, and returns the file of its socket.
func holds(t *testing.T, by Holder) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "heddle-hold-") // where others may look
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if tcprepair.Allowed() != nil {
		t.Skip("typed skip: CAP_NET_ADMIN is needed to learn of a socket's network")
	}
	file := filepath.Join(dir, "switch")
	l, err := netutil.ListenUnix(file)
	if err = errors.Join(err, os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ServeHolds(ctx, l, by) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return file
}

var holdTenant = netip.MustParseAddrPort("10.9.1.2:443")

// Whatever a gateway does, its connection is led, or goes on.
func TestHoldElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		does func(h *holdElsewhere) error
		want []string
	}{
		"moves":          {func(h *holdElsewhere) error { return errors.Join(h.Lead(holdTenant), h.Close()) }, []string{"lead " + holdTenant.String(), "close"}},
		"moves directly": {func(h *holdElsewhere) error { return errors.Join(h.LeadDirect(holdTenant), h.Close()) }, []string{"lead-direct " + holdTenant.String(), "close"}},
		"stays":          {func(h *holdElsewhere) error { return h.Resume() }, []string{"resume"}},
		"ends":           {func(h *holdElsewhere) error { return h.way.Close() }, []string{"resume"}},
		"ends after it leads": {func(h *holdElsewhere) error { return errors.Join(h.Lead(holdTenant), h.way.Close()) },
			[]string{"lead " + holdTenant.String(), "reset"}},
		"loses it": {func(h *holdElsewhere) error { return errors.Join(h.Lead(holdTenant), h.Reset()) }, []string{"lead " + holdTenant.String(), "reset"}},
		"leads twice": {func(h *holdElsewhere) error {
			if err := h.Lead(holdTenant); err != nil {
				return err
			}
			if h.Lead(holdTenant) == nil {
				return errors.New("the second answer is yes")
			}
			return nil
		}, []string{"lead " + holdTenant.String(), "reset"}},
		"leads, and lets it go on": {func(h *holdElsewhere) error {
			if err := h.Lead(holdTenant); err != nil {
				return err
			}
			if h.Resume() == nil {
				return errors.New("both sides have the connection")
			}
			return nil
		}, []string{"lead " + holdTenant.String(), "reset"}},
		"asks for something else": {func(h *holdElsewhere) error {
			_, err := h.way.Write([]byte(`{"do":"hold"}`))
			return err
		}, []string{"resume"}},
		"says what is no JSON": {func(h *holdElsewhere) error {
			_, err := h.way.Write([]byte{0, 1, 2})
			return err
		}, []string{"resume"}},
	} {
		t.Run(name, func(t *testing.T) {
			by := &recorder{}
			h, err := Elsewhere(holds(t, by)).Hold(connected(t))
			if err != nil {
				t.Fatal(err)
			}
			if err := c.does(h.(*holdElsewhere)); err != nil {
				t.Error(err)
			}
			by.await(t, append([]string{"hold"}, c.want...)...)
		})
	}
}

// The gateway learns why something failed, and goes on.
func TestHoldElsewhereFails(t *testing.T) {
	for _, fails := range []string{"hold", "lead"} {
		by := &recorder{fails: fails}
		h, err := Elsewhere(holds(t, by)).Hold(connected(t))
		if fails == "lead" && err == nil {
			err = h.Lead(holdTenant)
			if other := h.Resume(); other != nil {
				t.Error(other)
			}
			by.await(t, "hold", "lead "+holdTenant.String(), "resume")
		}
		if err == nil || !strings.Contains(err.Error(), "it fails") || errhint.Of(err) != "another hint" {
			t.Errorf("%s: %v; %s", fails, err, errhint.Of(err))
		}
	}
	err := CheckElsewhere(filepath.Join(t.TempDir(), "none"))
	if err == nil || !strings.Contains(errhint.Of(err), "serve --only switch") {
		t.Errorf("nobody is there: %v; %s", err, errhint.Of(err))
	}
}

// A gateway that is refused before it could ask learns why.
func TestHoldElsewhereRefusedEarly(t *testing.T) {
	near, far, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	if err := errors.Join(answerHold(far, &errhint.Error{What: "x", Hint: "why"}), far.Close()); err != nil {
		t.Fatal(err)
	}
	h := &holdElsewhere{way: near.(*net.UnixConn), answers: json.NewDecoder(near)}
	if err := h.begin(connected(t)); errhint.Of(err) != "why" {
		t.Errorf("%v; %s", err, errhint.Of(err))
	}
}

// Nothing is held of somebody who gives no connection of TCP, or may give none.
func TestHoldsOfNobody(t *testing.T) {
	by := &recorder{}
	file := holds(t, by)
	if err := CheckElsewhere(file); err != nil {
		t.Error(err)
	}
	near, far, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	defer far.Close()
	for name, give := range map[string]func(*net.UnixConn) error{
		"no descriptor": func(way *net.UnixConn) error {
			_, err := way.Write([]byte(`{"do":"hold"}`))
			return err
		},
		"a pipe": func(way *net.UnixConn) error {
			raw, err := far.(*net.UnixConn).SyscallConn()
			if err != nil {
				return err
			}
			return errors.Join(raw.Control(func(fd uintptr) { err = giveDescriptor(way, int(fd), []byte(`{"do":"hold"}`)) }), err)
		},
	} {
		way, err := elsewhere(file).dial()
		if err != nil {
			t.Fatal(err)
		}
		_ = way.SetDeadline(time.Now().Add(polltest.Patience))
		if err := give(way); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := way.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: it answers, or waits: %v", name, err)
		}
		way.Close()
	}
	if os.Getuid() != 0 {
		t.Skip("typed skip: it takes root to be somebody else")
	}
	if err := os.Chmod(file, 0o666); err != nil {
		t.Fatal(err)
	}
	stranger := credentials{65534, 65534, nil}.dial(t, file)
	defer stranger.Close()
	_ = stranger.SetDeadline(time.Now().Add(polltest.Patience))
	if answer, err := io.ReadAll(stranger); err != nil || !strings.Contains(string(answer), "switch-group") {
		t.Errorf("a stranger reads %s, %v", answer, err)
	}
	by.await(t)
}

// A connection goes on with the gateway's own descriptor if the gateway breaks off.
func TestHeldConnectionGoesOn(t *testing.T) {
	near, far := pair(t)
	h, err := Elsewhere(holds(t, Here(nil))).Hold(far)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := near.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	h.(*holdElsewhere).way.Close()
	got := make([]byte, 1)
	polltest.Until(t, func() error { // it must not be read while it is held
		_, err := far.Read(got)
		return err
	})
	if _, err := far.Write(got); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(near, got); err != nil {
		t.Fatal(err)
	}
}

// A gateway can make a connection of any addresses in a network namespace of its own. The switch does not hold it, nor a socket without a connection:
// their packets could be somebody else's.
func TestHoldsOfOtherNetworks(t *testing.T) {
	by := &recorder{}
	file := holds(t, by)
	var other *net.TCPConn
	nstest.New(t).Do(t, func() error {
		_, other = pair(t)
		return nil
	})
	if h, err := Elsewhere(file).Hold(other); err == nil {
		t.Error("a connection of another network is held")
		_ = h.Close()
	}
	by.await(t)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := connOf(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer alone.Close()
	if _, err := Elsewhere(holds(t, Here(nil))).Hold(alone.(*net.TCPConn)); err == nil || !strings.Contains(err.Error(), tcprepair.ErrNotEstablished.Error()) {
		t.Errorf("a socket without a connection: %v", err)
	}
}
