package cloud

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/errhint"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/database"
	"heddle/pseudonym/gateway"
)

func TestGatewayIdentity(t *testing.T) {
	o := Options{Zone: "cloud.example", Dir: filepath.Join(t.TempDir(), "cloud"), Log: slog.New(slog.DiscardHandler)}
	if err := Create(o.Dir, o.Zone, time.Now()); err != nil {
		t.Fatal(err)
	}
	key, err := GatewayIdentity(o)
	if err != nil {
		t.Fatal(err)
	}
	seal, err := readGatewaySeal(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := gatewayIdentity(seal); err != nil || ca.KeyOf(c.Leaf) != key {
		t.Errorf("a gateway shows another key than the one that agents get: %v", err)
	}
	for mode, moves := range map[gateway.Mode]bool{gateway.Auto: true, "": true, gateway.Pass: false, gateway.Relay: false} {
		o.Mode = mode
		if m, err := newMover(o, seal, nil); err != nil || (m != nil) != moves {
			t.Errorf("%q: %v, %v", mode, m, err)
		}
	}
	o.Mode = gateway.Handoff
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		header, none := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
		if err := unix.Capset(&header, &none[0]); err != nil {
			failed <- err
			return
		}
		_, err := newMover(o, seal, (&Cloud{o: o}).openSwitch)
		failed <- err
	}()
	if err := <-failed; !errors.Is(err, unix.EPERM) || !strings.Contains(errhint.Of(err), "CAP_NET_ADMIN") {
		t.Errorf("without a right: %v; %s", err, errhint.Of(err))
	}
	if err := os.Remove(filepath.Join(o.Dir, GatewayKey)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if _, err := GatewayIdentity(o); err == nil || !strings.Contains(errhint.Of(err), "init --renew") {
		t.Errorf("without a key: %v; %s", err, errhint.Of(err))
	}
	if _, err := newMover(o, nil, nil); err == nil {
		t.Error("it moves connections without a key")
	}
}

// In mode auto the log says once why a gateway moves no connections, or leads none by pseudo-addresses. In the mode of that way it does not begin.
func TestAutoSaysWhyItRelays(t *testing.T) {
	var log bytes.Buffer
	o := Options{Zone: testZone, Dir: filepath.Join(t.TempDir(), "cloud"), Prefix: testPrefix, Device: "none0", Ports: []uint16{443}, Log: slog.New(slog.NewTextHandler(&log, nil))}
	if err := Create(o.Dir, o.Zone, time.Now()); err != nil {
		t.Fatal(err)
	}
	seal, err := readGatewaySeal(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	db, err := database.Open(t.Context(), filepath.Join(t.TempDir(), "db"), sealOf(t, 1), o.Log)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	mayNot := &errhint.Error{What: "the switch", Why: "it may not", Hint: "let it"}
	for name, c := range map[string]struct {
		by    gateway.Mode // that fails instead
		try   func(Options) error
		wants []string
	}{
		"no right": {gateway.Handoff, func(o Options) error {
			m, err := newMover(o, seal, func() (gateway.Holder, error) { return nil, mayNot })
			if err != nil {
				return err
			}
			_, _ = m.Begin(), m.Begin() // as the first and the second connection do
			return nil
		}, []string{"connections are relayed that could move", "the switch: it may not", `hint="let it"`}},
		"no gateway.key": {gateway.Handoff, func(o Options) error {
			m, err := newMover(o, nil, nil)
			if err == nil && m != nil {
				t.Error("it moves connections without a key")
			}
			return err
		}, []string{"connections are relayed that could move", "there is no gateway.key", "init --renew"}},
		"no device": {gateway.V6, func(o Options) error {
			return (&Cloud{o: o, db: db, parts: Parts{Switch: true}}).openAddresses(t.Context())
		}, []string{"packets to pseudo-addresses are not led to tenants", "error=", "hint="}},
	} {
		t.Run(name, func(t *testing.T) {
			for mode, begins := range map[gateway.Mode]bool{gateway.Auto: true, "": true, c.by: false} {
				log.Reset()
				o.Mode = mode
				if err := c.try(o); (err == nil) != begins {
					t.Errorf("%q: %v", mode, err)
				}
				said := log.String()
				if !begins {
					if said != "" {
						t.Errorf("%q: it fails, and says %s", mode, said)
					}
					continue
				}
				for _, want := range c.wants {
					if strings.Count(said, "\n") != 1 || !strings.Contains(said, want) {
						t.Errorf("%q: it does not say once %q: %s", mode, want, said)
					}
				}
			}
		})
	}
}
